/** @type {import('jest').Config} */
module.exports = {
  roots: ['<rootDir>/services'],
  testMatch: ['<rootDir>/services/*/src/**/*.test.ts', '<rootDir>/services/*/test/**/*.test.ts'],
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
  // The workspaces' own packages are taken from their sources.
  testEnvironmentOptions: { customExportConditions: ['source', 'node', 'require', 'default'] },
  globalSetup: '<rootDir>/services/local/test/global-setup.ts',
  globalTeardown: '<rootDir>/services/local/test/global-teardown.ts',
  maxWorkers: 2,
  testTimeout: 60_000,
};
