/**
 * Suites of services/local that do not run on the stack, with the reason: they do not test the API, or they would damage
 * the shared stack.
 */
const notOnStack = require('./services/local/test/not-on-stack.json');

const common = {
  roots: ['<rootDir>/services'],
  modulePathIgnorePatterns: ['<rootDir>/services/[^/]+/dist/'],
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
  testEnvironment: 'node',
  // Packages of the workspaces are loaded from their sources.
  testEnvironmentOptions: { customExportConditions: ['source', 'node', 'require', 'default'] },
  setupFilesAfterEnv: ['<rootDir>/services/local/test/time-limit.ts'],
  globalSetup: '<rootDir>/services/local/test/global-setup.ts',
  globalTeardown: '<rootDir>/services/local/test/global-teardown.ts',
};

/** @type {import('jest').Config} */
module.exports = {
  maxWorkers: 2,
  // A worker above this size is replaced before its next suite.
  workerIdleMemoryLimit: '200MB',
  projects: [
    {
      ...common,
      displayName: 'embedded',
      testMatch: ['<rootDir>/services/*/src/**/*.test.ts', '<rootDir>/services/*/test/**/*.test.ts'],
      testPathIgnorePatterns: ['/services/local/test/(attacks|clients)/'],
    },
    // Load and hostile input by other clients and apps; run alone, by `npm run test:attacks`.
    {
      ...common,
      displayName: 'attacks',
      testMatch: ['<rootDir>/services/local/test/attacks/*.test.ts'],
    },
    // Generated clients and tests of the OpenAPI document.
    {
      ...common,
      displayName: 'clients',
      testMatch: ['<rootDir>/services/local/test/clients/*.test.ts'],
    },
    // The same suites again, on one process per service, Kafka and MinIO.
    {
      ...common,
      displayName: 'stack',
      testMatch: ['<rootDir>/services/local/test/*.test.ts'],
      testPathIgnorePatterns: Object.keys(notOnStack).map((name) => `/services/local/test/${name}$`),
      setupFilesAfterEnv: [...common.setupFilesAfterEnv, '<rootDir>/services/local/test/stack-pass.ts'],
    },
  ],
};
