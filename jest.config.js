/** Suites of services/local that are not about what is behind the front door, or that harm what it stands on. */
const notOnStack = {
  'backup-failures.test.ts': 'is about the commands, which are the same on a stack',
  'blobs-away.test.ts': 'kills and freezes a MinIO of its own',
  'clocks.test.ts': 'sets the clock of one process',
  'commit-cut.test.ts': 'cuts the commits of one process',
  'crash.test.ts': 'kills npm start',
  'documentation.test.ts': 'is about documentation',
  'full-disk.test.ts': 'fills the disk of npm start',
  'postgres.test.ts': 'is about the Postgres that npm start brings along',
  'rolling.test.ts': 'starts copies of processes of its own',
  'settings-documented.test.ts': 'is about documentation',
  'settings.test.ts': 'starts npm start and npm run stack itself',
  'launch.test.ts': 'starts npm start and npm run stack itself',
  'server-guide.test.ts': 'starts what the systemd unit starts',
  'start-failures.test.ts': 'starts npm start and npm run stack itself',
  'stack-parts.test.ts': 'is about Kafka and MinIO themselves',
  'stack-run.test.ts': 'is about npm run stack itself',
  'traces.test.ts': 'collects the spans of its own process',
  'trust.test.ts': 'starts services with secrets and certificates of its own',
  'unread-log.test.ts': 'starts a gateway of its own',
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
  // The workspaces' own packages are taken from their sources.
  testEnvironmentOptions: { customExportConditions: ['source', 'node', 'require', 'default'] },
  setupFilesAfterEnv: ['<rootDir>/services/local/test/time-limit.ts'],
  globalSetup: '<rootDir>/services/local/test/global-setup.ts',
  globalTeardown: '<rootDir>/services/local/test/global-teardown.ts',
};

/** @type {import('jest').Config} */
module.exports = {
  maxWorkers: 2,
  // A worker that has grown is replaced before its next suite.
  workerIdleMemoryLimit: '200MB',
  projects: [
    {
      ...common,
      displayName: 'embedded',
      testMatch: ['<rootDir>/services/*/src/**/*.test.ts', '<rootDir>/services/*/test/**/*.test.ts'],
      testPathIgnorePatterns: ['/services/local/test/(attacks|clients)/'],
    },
    // What strangers and neighbours do to an app; alone on the machine, by `npm run test:attacks`.
    {
      ...common,
      displayName: 'attacks',
      testMatch: ['<rootDir>/services/local/test/attacks/*.test.ts'],
    },
    // What generators of clients and tests make of the OpenAPI document.
    {
      ...common,
      displayName: 'clients',
      testMatch: ['<rootDir>/services/local/test/clients/*.test.ts'],
    },
    // The same suites once more, each on a process per service, Kafka and MinIO.
    {
      ...common,
      displayName: 'stack',
      testMatch: ['<rootDir>/services/local/test/*.test.ts'],
      testPathIgnorePatterns: Object.keys(notOnStack).map((name) => `/services/local/test/${name}$`),
      setupFilesAfterEnv: [...common.setupFilesAfterEnv, '<rootDir>/services/local/test/stack-pass.ts'],
    },
  ],
};
