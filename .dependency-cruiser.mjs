/**
 * @import { ICruiseOptions, IForbiddenRuleType } from 'dependency-cruiser'
 * @typedef {IForbiddenRuleType} Rule
 */

/**
 * The map of the code. A room is a folder: the files directly in it. Each package lists its rooms from the ground up,
 * and a room imports from itself and from rooms listed before it, never from one listed after. Files directly in `src`
 * are leaves, which every room may import, or the roof, which puts the rooms together and which no room imports.
 * `npm run lint` checks it; `npm run rooms` draws it (docs/rooms.svg).
 * @type {Record<string, string[]>}
 */
export const rooms = {
  shared: [
    'concurrency',
    'http',
    'keys',
    'json',
    'telemetry',
    'health',
    'trust',
    'money',
    'money/cosmos',
    'postgres/wire',
    'postgres',
    'idempotency',
    'rpc',
    'mux',
    'grpc',
    'kafka',
    'bus',
    'service',
  ],
  data: [
    'json',
    'postgres',
    'values',
    'countries',
    'encryption-keys',
    'catalog',
    'encryption',
    'documents',
    'query/language/regexp',
    'query/language',
    'query/plan',
    'query/sql',
    'query/execute',
    'jobs',
    'chain',
    'usage',
    'tables',
    'commit',
    'apps',
    'collections',
    'datasets',
    'queries',
    'views/language',
    'views/plan',
    'views/aggregates',
    'views/sql',
    'views',
    'views/live',
    'views/builds',
    'reads',
    'feed',
    'export',
    'skills',
    'openapi',
    'writes',
    'imports/records',
    'imports',
  ],
  gateway: [
    'errors',
    'admission',
    'http',
    'blob-proxy',
    'clients',
    'validation',
    'spending',
    'feed',
    'export',
    'imports',
    'pipeline',
    'openapi',
    'docs',
    'paying',
    'routes',
  ],
  blobs: ['stores', 'stores/s3', 'objects', 'records', 'maintenance', 'transfers'],
  finance: [
    'ledger',
    'wallets',
    'chain',
    'cosmos-chain',
    'simulated-chain',
    'outgoing',
    'deposits',
    'grants',
    'payouts',
    'usage',
    'closing',
    'reconciliation',
    'handlers',
  ],
  payments: [
    'verify',
    'networks',
    'schemes/evm',
    'schemes/simulated',
    'schemes/solana',
    'schemes/cosmos',
    'schemes',
    'settings',
    'quotes',
    'settlement',
    'spending',
  ],
  tasks: [],
  client: ['http', 'documents', 'files', 'feed'],
  cli: ['terminal', 'profiles', 'session', 'types', 'filters', 'transfers', 'proof', 'proxy', 'completion', 'commands'],
  local: ['postgres', 'processes', 'start'],
  operator: ['program', 'settings', 'chains', 'backup', 'commands'],
  stack: ['tools', 'programs', 'kafka', 'minio'],
  kube: ['cluster', 'images', 'backends', 'traffic', 'proof', 'steps'],
  bench: ['baselines', 'granary'],
};

/** @type {Record<string, string[]>} */
export const leaves = {
  bench: ['child', 'documents'],
  cli: ['exact-json', 'failure', 'replace-file'],
  client: ['errors', 'numbers', 'types'],
  finance: ['config', 'page'],
  kube: ['child', 'image-programs', 'say', 'waiting'],
  local: ['config', 'ports'],
  payments: ['amounts-by-network', 'payment-refused'],
  shared: [
    'byte-writer',
    'config',
    'errors',
    'host-port',
    'ids',
    'listen-problems',
    'random',
    'log-output',
    'logger',
    'names',
    'near-names',
    'shortened',
    'start-error',
    'version',
  ],
};

/** Each of these libraries is imported in one place only, and by what the benchmark compares it with. */
const importedIn = {
  kafkajs: 'services/shared/src/kafka/',
  minio: 'services/(blobs/src/stores/s3/client|bench/src/baselines/minio-client)\\.ts$',
  '@opentelemetry/[^/]+': 'services/shared/src/telemetry/sdk\\.ts$',
  pg: 'services/(shared/src/postgres|data/src/postgres|testing/src|local/src|operator/src/backup|bench/src)/|^deploy/(stack/src/containers|kube/src/backends/copy-postgres)\\.ts$',
  express: 'services/(gateway/src|bench/src/baselines)/',
  'prom-client': 'services/shared/src/telemetry/metrics\\.ts$',
  '(tiny-)?secp256k1': 'services/shared/src/money/secp256k1\\.ts$',
};

/** The folder of a package. @param {string} name */
export const folderOf = (name) => `${['stack', 'kube'].includes(name) ? 'deploy' : 'services'}/${name}`;

/** @param {string} name @param {string} room */
const inRoom = (name, room) => `^${folderOf(name)}/src/${room}/[^/]+$`;
/** @param {string} name */
const leavesOf = (name) =>
  `^${folderOf(name)}/src/(${[...(leaves[name] ?? ['config']), 'gen/.+'].join('|')})\\.(ts|json)$`;

/** @type {Rule[]} */
const downward = Object.entries(rooms).flatMap(([name, floors]) => [
  ...floors.slice(0, -1).map(
    /** @returns {Rule} */ (room, at) => ({
      name: `${name}/${room}-imports-downward`,
      severity: 'error',
      from: { path: inRoom(name, room) },
      to: { path: floors.slice(at + 1).map((above) => inRoom(name, above)) },
    }),
  ),
  {
    name: `${name}-roof-is-not-imported`,
    severity: 'error',
    from: { path: `^${folderOf(name)}/src/.+/` },
    to: { path: `^${folderOf(name)}/src/[^/]+$`, pathNot: leavesOf(name) },
  },
  {
    name: `${name}-leaves-import-leaves`,
    severity: 'error',
    from: { path: leavesOf(name), pathNot: '/gen/' },
    to: { path: `^${folderOf(name)}/src/`, pathNot: leavesOf(name) },
  },
  {
    name: `${name}-folder-is-a-listed-room`,
    severity: 'error',
    from: {},
    to: { path: `^${folderOf(name)}/src/.+/`, pathNot: [...floors.map((room) => inRoom(name, room)), leavesOf(name)] },
  },
]);

/** What runs the services, or is run for them, each above those before it. */
const upperFloors = ['local', 'operator', 'stack', 'kube', 'bench'];
const services = Object.keys(rooms).filter((name) => name !== 'shared' && !upperFloors.includes(name));

/** @type {{ forbidden: Rule[], options: ICruiseOptions }} */
const configuration = {
  forbidden: [
    { name: 'no-circle-of-files', severity: 'error', from: {}, to: { circular: true } },
    { name: 'no-circle-of-folders', severity: 'error', scope: 'folder', from: {}, to: { circular: true } },
    ...downward,
    {
      name: 'what-runs-imports-no-tests',
      comment: 'The cluster is awaited as tests do it, and the payments of the benchmark are made by their clients.',
      severity: 'error',
      from: {
        path: '^(services|deploy)/',
        pathNot: '^(deploy/kube|services/testing)/|^services/bench/src/granary/verifications\\.ts$',
      },
      to: { path: '^services/(testing|e2e)/' },
    },
    {
      name: 'services-meet-over-the-network',
      comment: 'Only services/local, which starts them all in one process, and what is above it import services.',
      severity: 'error',
      from: { path: `^services/(${services.join('|')}|shared)/src/` },
      to: { path: `^services/(${services.join('|')})/src/`, pathNot: '^services/$1/' },
    },
    {
      name: 'the-client-depends-on-nothing',
      severity: 'error',
      from: { path: '^services/client/src/' },
      to: { pathNot: '^services/client/src/' },
    },
    {
      name: 'the-command-line-knows-the-service-by-the-client',
      severity: 'error',
      from: { path: '^services/cli/src/' },
      to: { path: '^(services|deploy)/', pathNot: '^services/(cli|client)/' },
    },
    ...upperFloors.map(
      /** @returns {Rule} */ (name, floor) => ({
        name: `${name}-is-imported-from-above`,
        severity: 'error',
        from: { path: '^(services|deploy)/', pathNot: upperFloors.slice(floor).map((above) => `^${folderOf(above)}/`) },
        to: { path: `^${folderOf(name)}/` },
      }),
    ),
    {
      name: 'what-the-image-carries-imports-no-local',
      comment: 'scripts/image/application.mjs carries these; services/local has a Postgres of its own.',
      severity: 'error',
      from: {
        path: '^services/operator/src/(program/|commands/(dead-letters|ledger-verify|payouts|topics)\\.ts$)',
      },
      to: { path: '^services/(local|operator/src/(backup|chains))/' },
    },
    ...Object.entries(importedIn).map(
      /** @returns {Rule} */ ([library, place]) => ({
        name: `${library}-is-imported-in-one-place`,
        severity: 'error',
        from: { path: '^(services|deploy)/', pathNot: `^${place}` },
        to: { path: `node_modules/${library}/` },
      }),
    ),
  ],
  options: {
    tsPreCompilationDeps: true,
    doNotFollow: { path: 'node_modules' },
    exclude: { path: '^(services|deploy)/[^/]+/(dist|test)/|\\.test\\.ts$' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['source', 'require', 'node', 'default'] },
  },
};

export default configuration;
