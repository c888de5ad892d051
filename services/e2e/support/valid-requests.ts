import { newWallet, type Wallet } from './wallet-signing';

/** What makes an operation of the OpenAPI document a request that is accepted. */
export interface ValidRequest {
  /** What stands in its path where that is not of `pathNames`. */
  path?: Record<string, string>;
  /** Parameters in its URL. */
  query?: Record<string, string>;
  body?: Record<string, unknown>;
  /** Signs it. */
  wallet?: Wallet;
}

/** The application that the requests are for. */
export interface Subject {
  appId: string;
  /** A name that nothing has yet. */
  newName: () => string;
  /** Creates an empty collection, and returns its name. */
  newCollection: () => Promise<string>;
  /** Creates a query of the version 1, and returns its name. */
  newQuery: () => Promise<string>;
}

export type MakeValidRequest = (subject: Subject) => ValidRequest | Promise<ValidRequest>;

/** What stands in paths, as `RequestSubject` makes it. */
export const pathNames: Readonly<Record<string, string>> = {
  collection: 'docs',
  view_name: 'seen',
  query_name: 'of',
  height: '1',
};

const body = (members: object | ((subject: Subject) => object)): MakeValidRequest => {
  const make = typeof members === 'function' ? (members as (subject: Subject) => object) : () => members;
  return (subject) => ({ body: make(subject) as Record<string, unknown> });
};
const url = (query: Record<string, string>) => (): ValidRequest => ({ query });
/** A body with a new name. */
const named = (members: object) => body(({ newName }) => ({ name: newName(), ...members }));
/** A body for a new collection. */
const ofCollection =
  (members: object): MakeValidRequest =>
  async ({ newCollection }) => ({ path: { collection: await newCollection() }, body: { ...members } });

const price = { pricing_model: 'per_access', price_per_access_utia: 5, app_owner_percentage: 0.7 };
const otherPrices = [
  { pricing_model: 'per_access', price_per_access_tia: 0.1, platform_percentage: 0.2, app_owner_address: 'a' },
  { pricing_model: 'per_kb', price_per_kb_tia: 0.1 },
  { pricing_model: 'per_kb', price_per_kb_utia: 7 },
];
const policy = { read: 'private' };
const page = { limit: '5', offset: '0', count: 'none', sort: 'n', select: 'id,n' };
const listing = { limit: '5' };
const find = { n: { gte: 0 } };
const listed = { find, select: ['id', 'n'], limit: 5, offset: 0, sort: ['n'], include_history: false, count: 'none' };
const sorted = { sortBy: 'n', sortDirection: 'descending' };
const grouped = { find, group_by: ['n'], aggregate: { all: { $count: '*' } }, limit: 10 };
const join = { other: { collection: 'docs', on: { n: '$data.n' }, type: 'left' } };
const joined = { select: ['id', 'other'], base: 'docs', join, sort_by: ['id'] };
const view = { source_collections: ['docs'], refresh_mode: 'lazy', variables: { n: 'n' }, access_policy: policy };
const fields = {
  n: { type: 'number', required: false, unique: false, index: false, default: 1, validation: { min: 0, max: 9 } },
  t: { type: 'string', validation: { pattern: 'a', enum: ['a', 'ba'] }, description: 'A text' },
  d: { type: 'date', format: 'day' },
};
const rules = { schema_definition: { fields }, access_policy: policy, write_pricing: 'off', read_price_config: price };
const collection = { namespace: 'own', primary_column: 'id', sort_column: 'n', ...rules };
const index = {
  field_name: 'n',
  index_type: 'btree',
  store_values: true,
  unique_constraint: false,
  sort_enabled: true,
};
const limits = { max_payment_per_tx: 1, spend_allowance: 2, expires_at: '2099-01-01T00:00:00Z' };
const payingKey = body(({ appId, newName }) => ({
  name: newName(),
  permissions: ['Pay'],
  pay_limits: { allowed_target_apps: [appId], ...limits },
}));
const settings = { auto_payout_enabled: false, locked_balance: 0, min_payout: 100_000, payout_threshold: 200_000 };
const quote = { operation_type: 'write', size_kb: 1, collection: 'docs', monthly_volume_kb: 0, data: { n: 1 } };
const x402 = body({ x402Version: 1, paymentPayload: { x: 1 }, paymentRequirements: { x: 1 } });
const newIndex = (members: object) => body(({ newName }) => ({ name: newName(), collection: newName(), ...members }));

const subscribed = {
  subscriptions: [{ as: 'some', collection: 'docs', find, mode: 'latest' }],
  select: ['id'],
  documents: true,
};

/** By operation: requests that together have each member of its body and each parameter of its URL. */
export const validRequests: Readonly<Record<string, readonly MakeValidRequest[]>> = {
  store: [body(({ appId, newName }) => ({ root: `${appId}::docs`, data: [{ id: newName(), n: 1 }] }))],
  list: [
    body(({ appId }) => ({ root: `${appId}::docs`, ...listed })),
    body(({ appId }) => ({ root: `${appId}::docs`, ...sorted })),
  ],
  readCollection: [url({ ...page, 'n.$gte': '0' })],
  readChanges: [
    url({ since: '0', collection: 'docs', find: '{"n":1}', select: 'id', documents: 'true', mode: 'all', limit: '5' }),
    url({ wait: '0' }),
  ],
  readSubscribedChanges: [body({ since: '0', wait: 0, limit: 5, ...subscribed })],
  exportCollection: [
    url({ format: 'csv', at: '1', find: '{"n":1}', select: 'id', deleted: 'include', columns: 'id', formulas: 'keep' }),
    url({ history: 'true', after: 'd1', after_version: '1' }),
  ],
  importFile: [
    url({ format: 'csv', mode: 'skip', on_error: 'continue', dry_run: 'true', columns: 'id', types: 'id:string' }),
    url({ format: 'csv', empty: 'null', separator: 'tab' }),
  ],
  createImport: [
    body({ collection: 'docs', format: 'csv', mode: 'skip', on_error: 'continue', dry_run: true, columns: ['id'] }),
    body({ collection: 'docs', format: 'csv', types: { id: 'string' }, empty: 'null', separator: ';', size_bytes: 1 }),
  ],
  createFeedToken: [body({ ttl_seconds: 60, ...subscribed })],
  deleteDocument: [() => ({ path: { document_id: 'd2' }, query: { erase: 'false' } })],
  batch: [
    body({
      operations: [{ operation: 'update', collection: 'docs', data: { id: 'd1', m: 1 }, conditions: find }],
      atomic: false,
    }),
  ],
  readView: [url({ ...page, filter: '{"n":1}', n: '1' })],
  createView: [
    named({ ...view, query: grouped, read_price_config: price }),
    named({ ...view, query: joined }),
    ...otherPrices.map((other) => named({ ...view, query: {}, read_price_config: other })),
  ],
  changeView: [
    () => ({ path: { view_name: 'changed' }, body: { ...view, query: grouped, read_price_config: {} } }),
    () => ({ path: { view_name: 'changed' }, body: { ...view, query: joined } }),
  ],
  listViews: [url(listing)],
  runQuery: [url({ limit: '5', offset: '0', count: 'none', version: '1', n: '1' })],
  createQuery: [
    named({
      source_collection: 'docs',
      base_query: { find, select: ['id'], sort: ['n'], limit: 10 },
      parameters: [{ name: 'n', field_path: 'n', default: 1, required: false, description: 'A number' }],
      description: 'Some',
      version: '1',
      example_request: {},
      example_response: {},
      access_policy: policy,
      read_price_config: price,
    }),
  ],
  listQueries: [url(listing)],
  getQuery: [url({ version: '1' })],
  deleteQuery: [async ({ newQuery }) => ({ path: { query_name: await newQuery() }, query: { version: '1' } })],
  listDatasets: [url(listing)],
  putDataset: [({ newName }) => ({ path: { dataset_name: newName() }, body: { values: [1, 'a'] } })],
  createCollection: [named(collection)],
  listCollections: [url({ ...listing, include_stats: 'true' })],
  listApiCollections: [url(listing)],
  getCollection: [url({ include_stats: 'true' })],
  updateCollection: [ofCollection({ ...collection, force: false })],
  deleteCollection: [
    ofCollection({ force: true, cascade: true }),
    async ({ newCollection }) => ({
      path: { collection: await newCollection() },
      query: { force: 'true', cascade: 'true' },
    }),
  ],
  validateDocuments: [body({ data: [{ n: 1 }] })],
  setRetention: [ofCollection({ retention_days: 30 })],
  explainQuery: [body(({ appId }) => ({ query: { root: `${appId}::docs`, ...listed } })), body({ query: sorted })],
  createIndex: [
    newIndex({ ...index, options: { unique: false }, force: false, read_price_config: price, price_config: price }),
    newIndex({ fields: ['a', 'b'], index_type: 'composite' }),
    newIndex({ field_name: 't', index_type: 'fulltext', options: { language: 'english' } }),
    newIndex({ field_name: 't', index_type: 'fulltext', options: { defaultLanguage: 'english' } }),
  ],
  listIndexes: [url(listing)],
  quoteEncryptedIndex: [url({ collection: 'docs', field_name: 'n' })],
  listIndexesOfCollection: [url(listing)],
  createIndexOfCollection: [ofCollection({ field_name: 'n', index_config: { index_type: 'Secondary' } })],
  createRelation: [
    body(({ newName }) => ({
      parent_collection: 'docs',
      parent_field: 'id',
      child_collection: 'docs',
      child_field: newName(),
    })),
  ],
  listTasks: [url({ ...listing, status: 'Completed' })],
  listCommits: [url({ from: '1', limit: '5', texts: 'true' })],
  getProof: [url({ id: 'd1' })],
  createKey: [payingKey],
  listKeys: [url(listing)],
  regenerateKey: [payingKey],
  listWalletEntries: [url(listing)],
  updatePayoutSettings: [body(() => ({ ...settings, payout_destination: newWallet().address }))],
  triggerPayout: [body(() => ({ amount: 100_000, payout_address: newWallet().address }))],
  listPayouts: [body({ limit: 5, offset: 0, status: 'pending' })],
  readPayoutHistory: [url({ limit: '5', offset: '0', status: 'pending' })],
  fundWallet: [body({ amount: 1 })],
  listTransactionsOfApplication: [url({ limit: '5', offset: '0' })],
  listTransactionsOfUser: [
    () => {
      const wallet = newWallet();
      return { path: { user_address: wallet.address }, query: { limit: '5', offset: '0' }, wallet };
    },
  ],
  createGrant: [
    ({ appId }) => ({
      body: { limit_utia: 1_000, allowed_apps: [appId], expires_at: new Date(Date.now() + 86_400_000).toISOString() },
      wallet: newWallet(),
    }),
  ],
  putSkills: [body({ markdown: 'Some text' })],
  createApplication: [
    body(({ newName }) => ({
      app_id: newName(),
      name: 'One',
      description: 'Some',
      owner_address: newWallet().address,
    })),
  ],
  listApplications: [url({ limit: '5', offset: '0' })],
  updateApplication: [body({ payment_networks: ['granary-simulated'] })],
  verifyPayment: [x402],
  settlePayment: [x402],
  quotePrice: [body(({ appId }) => ({ app_id: appId, ...quote }))],
};
