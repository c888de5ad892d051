/**
 * Suites of services/local that do not run on the stack: they do not test the API, or they would damage the shared
 * stack.
 */
const notOnStack = {
  'agent-crash.test.ts': 'kills npm start',
  'agent-payments.test.ts': 'starts services itself',
  'agent-write-crash.test.ts': 'kills npm start',
  'backup-failures.test.ts': 'tests the commands, which are the same on a stack',
  'batch-crash.test.ts': 'kills npm start',
  'blobs-away.test.ts': 'kills and freezes its own MinIO',
  'clocks.test.ts': 'sets the clock of one process',
  'commit-cut.test.ts': 'cuts the commits of one process',
  'crash.test.ts': 'kills npm start',
  'documentation.test.ts': 'tests documentation',
  'encrypted-canaries.test.ts': 'kills npm start',
  'full-disk.test.ts': 'fills the disk of npm start',
  'held-writes.test.ts': 'starts services itself',
  'image.test.ts': 'tests the image',
  'ipv6.test.ts': 'starts services on addresses of its own',
  'ledger-crash.test.ts': 'kills its own processes',
  'live-view-model.test.ts': 'starts two copies itself',
  'page-etags-copies.test.ts': 'starts replicas of services itself',
  'payout-crash.test.ts': 'kills its own processes',
  'postgres.test.ts': 'tests the embedded Postgres of npm start',
  'probes.test.ts': 'starts services itself',
  'retention-crash.test.ts': 'kills its own processes',
  'rolling.test.ts': 'starts replicas of services itself',
  'service-roles.test.ts': 'starts services on its own databases',
  'settings-documented.test.ts': 'tests documentation',
  'settings.test.ts': 'starts npm start and npm run stack itself',
  'kafka-tls.test.ts': 'starts its own Kafka',
  'launch.test.ts': 'starts npm start and npm run stack itself',
  'settlement-crash.test.ts': 'kills npm start',
  'server-guide.test.ts': 'starts what the systemd unit starts',
  'start-failures.test.ts': 'starts npm start and npm run stack itself',
  'start-waits.test.ts': 'starts services itself',
  'standbys.test.ts': 'starts a Postgres of its own',
  'signature-replays.test.ts': 'starts two copies itself',
  'stack-parts.test.ts': 'tests Kafka and MinIO themselves',
  'stack-run.test.ts': 'tests npm run stack itself',
  'traces.test.ts': 'collects the spans of its own process',
  'trust.test.ts': 'starts services with its own secrets and certificates',
  'unread-log.test.ts': 'starts its own gateway',
  'view-crash.test.ts': 'kills its own process',
  'x402-comet.test.ts': 'starts its own nodes of a Cosmos chain',
  'x402-evm.test.ts': 'starts its own node of an EVM network',
};

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
