const { existsSync, readdirSync } = require('node:fs');
const stackSuites = require('./services/e2e/stack-suites.json');

const folders = ['front-door', 'paying', 'operations'];
/**
 * Patterns of the suites that are not on the stack in this run. Before the first build nothing says which; then none is
 * there.
 */
function suitesNotOnStack() {
  if (!existsSync(`${__dirname}/services/testing/dist/stack-turn.js`)) return ['/services/e2e/'];
  const { isOnStackNow } = require('@granary/testing/stack-turn');
  return folders
    .flatMap((folder) => readdirSync(`${__dirname}/services/e2e/${folder}`).map((file) => `${folder}/${file}`))
    .filter((file) => file.endsWith('.test.ts') && !isOnStackNow(file.slice(0, -'.test.ts'.length), stackSuites))
    .map((file) => `/services/e2e/${file}$`);
}

const common = {
  roots: ['<rootDir>/services', '<rootDir>/deploy'],
  modulePathIgnorePatterns: ['<rootDir>/(services|deploy)/[^/]+/dist/'],
  transform: {
    '\\.ts$': [
      '@swc/jest',
      {
        swcrc: false,
        jsc: { parser: { syntax: 'typescript' }, target: 'es2022' },
        module: { type: 'commonjs' },
        sourceMaps: 'inline',
      },
    ],
  },
  testEnvironment: '<rootDir>/services/e2e/support/test-environment.ts',
  // Packages of the workspaces are loaded from their sources.
  testEnvironmentOptions: { customExportConditions: ['source', 'node', 'require', 'default'] },
  setupFilesAfterEnv: ['<rootDir>/services/e2e/support/time-limit.ts'],
  globalSetup: '<rootDir>/services/e2e/support/global-setup.ts',
  globalTeardown: '<rootDir>/services/e2e/support/global-teardown.ts',
};

const suitesIn = (/** @type {string[]} */ ...folders) =>
  folders.map((folder) => `<rootDir>/services/${folder}/*.test.ts`);

/** @type {import('jest').Config} */
module.exports = {
  maxWorkers: 2,
  // A worker above this size is replaced before its next suite.
  workerIdleMemoryLimit: '800MB',
  projects: [
    { ...common, displayName: 'unit', testMatch: ['<rootDir>/{services,deploy}/*/src/**/*.test.ts'] },
    { ...common, displayName: 'service', testMatch: suitesIn('*/test') },
    { ...common, displayName: 'front', testMatch: suitesIn(...folders.map((folder) => `e2e/${folder}`)) },
    // Those of these suites that are on a process per service, Kafka and MinIO in this run, see
    // testing/src/stack-turn.ts.
    {
      ...common,
      displayName: 'stack',
      testMatch: suitesIn(...folders.map((folder) => `e2e/${folder}`)),
      testPathIgnorePatterns: suitesNotOnStack(),
      setupFilesAfterEnv: [...common.setupFilesAfterEnv, '<rootDir>/services/e2e/support/stack-pass.ts'],
    },
    { ...common, displayName: 'chart', testMatch: suitesIn('e2e/chart') },
    // Starts, kills, upgrades and backs up whole processes.
    { ...common, displayName: 'system', testMatch: suitesIn('e2e/system') },
    // Generated clients and tests of the OpenAPI document.
    { ...common, displayName: 'clients', testMatch: suitesIn('e2e/clients') },
    // Load and hostile input by other clients and apps; run alone, last.
    { ...common, displayName: 'attacks', testMatch: suitesIn('e2e/attacks') },
  ],
};
