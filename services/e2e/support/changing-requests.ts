import { randomUUID } from 'node:crypto';
import type { Route } from '@granary/gateway/pipeline/route';
import { eventually } from '@granary/testing/eventually';
import { operatorKey, type Body, type TestApp } from './granary';
import { newWallet, signedRequest, type Wallet } from './wallet-signing';

/** A request that is accepted. */
export interface ChangingRequest {
  path: string;
  body?: Body;
  headers?: Record<string, string>;
  /** Signs it. */
  wallet?: Wallet;
  /** What makes it another request under the same key. */
  other: Partial<Omit<ChangingRequest, 'other'>>;
}

type MakeRequest = (app: TestApp) => ChangingRequest | Promise<ChangingRequest>;

let made = 0;
const newName = (): string => `n${++made}`;
const pathOf = ({ appId }: TestApp, rest: string): string => `/api/apps/${appId}/${rest}`;

const withBody =
  (
    rest: string | ((app: TestApp) => string | Promise<string>),
    body: (app: TestApp) => object,
    other: object = {},
  ): MakeRequest =>
  async (app) => {
    const path = pathOf(app, typeof rest === 'string' ? rest : await rest(app));
    const first = body(app);
    return { path, body: first, other: { body: { ...first, ...other } } };
  };

/** Seconds at which something was signed. */
const signedAt = new Set<number>();
/** Each signature is of another second, for one changes something once. */
function signedBy(wallet: Wallet, method: string, path: string, body?: Body): Record<string, string> {
  let second = Math.floor(Date.now() / 1_000);
  while (signedAt.has(second)) second -= 1;
  signedAt.add(second);
  const text = body === undefined ? '' : JSON.stringify(body);
  return { 'content-type': 'application/json', ...signedRequest(wallet, method, path, text, second * 1_000) };
}

/** A request as its caller sends it: with the key of the app, as the operator, or signed by a wallet. */
export function asCaller(
  { auth, method }: Pick<Route, 'auth' | 'method'>,
  { path, body, headers, wallet }: ChangingRequest,
  key: string,
): { key?: string; body?: Body; headers: Record<string, string> } {
  if (wallet) {
    const text = body === undefined ? {} : { body: JSON.stringify(body) };
    return { ...text, headers: { ...headers, ...signedBy(wallet, method, path, body) } };
  }
  const sent = body === undefined ? {} : { body };
  if (auth.kind === 'operator') return { ...sent, headers: { ...headers, 'x-operator-key': operatorKey } };
  return { ...sent, key, headers: { ...headers } };
}

/** A request without a body; a query parameter makes it another one. */
const bare =
  (rest: (app: TestApp) => string | Promise<string>, parameter = 'other=1'): MakeRequest =>
  async (app) => {
    const path = pathOf(app, await rest(app));
    return { path, other: { path: `${path}?${parameter}` } };
  };

async function succeed(app: TestApp, method: string, rest: string, body?: Body, headers?: Record<string, string>) {
  const answer = await app.call(method, pathOf(app, rest), body, headers);
  if (answer.status >= 300) throw new Error(`${method} ${rest}: ${answer.status} ${answer.text}`);
  if (typeof answer.body['ticket_id'] === 'string') await app.ended(answer.body['ticket_id']);
  return answer.body;
}

async function newCollection(app: TestApp): Promise<string> {
  const name = newName();
  await succeed(app, 'POST', 'collections', { name });
  return name;
}
async function newIndex(app: TestApp): Promise<{ collection: string; name: string }> {
  const collection = await newCollection(app);
  const name = newName();
  await succeed(app, 'POST', 'indexes', { name, collection, field_name: 'n', index_type: 'number' });
  return { collection, name };
}
async function newView(app: TestApp): Promise<string> {
  const name = newName();
  await succeed(app, 'POST', 'views', { name, source_collections: ['docs'], query: {} });
  return name;
}
async function newQuery(app: TestApp): Promise<string> {
  const name = newName();
  await succeed(app, 'POST', 'queries', { name, source_collection: 'docs', base_query: {} });
  return name;
}
async function newDataset(app: TestApp): Promise<string> {
  const name = newName();
  await succeed(app, 'PUT', `datasets/${name}`, { values: [1] });
  return name;
}
async function newBlob(app: TestApp): Promise<string> {
  const stored = await succeed(app, 'POST', 'blobs/files', randomUUID(), { 'content-type': 'text/plain' });
  return `files/${String(stored['blob_id'])}`;
}
async function newDocument(app: TestApp): Promise<string> {
  const id = newName();
  await app.store('docs', [{ id, n: 1 }]);
  return `collections/docs/documents/${id}`;
}
/** By app: what its wallet will have earned once all that was sent to it is credited. */
const expectedEarnings = new Map<string, number>();

async function expectEarnings(app: TestApp, amount: number): Promise<void> {
  const { total_earned: earned } = await succeed(app, 'GET', 'wallet');
  expectedEarnings.set(app.appId, Number(earned) + amount);
}

/** Resolves when all that was sent to the wallet is credited, and its payouts are final. */
export async function settleMoney(app: TestApp): Promise<void> {
  await eventually(async () => {
    const { total_earned: earned, pending_payouts: pending } = await succeed(app, 'GET', 'wallet');
    return Number(earned) >= (expectedEarnings.get(app.appId) ?? 0) && pending === 0;
  });
}

/** Sends the wallet money of the simulated chain, and waits until it is credited. */
async function fundWallet(app: TestApp, amount: number): Promise<void> {
  await expectEarnings(app, amount);
  await succeed(app, 'POST', 'faucet', { amount }, { 'x-operator-key': operatorKey });
  await settleMoney(app);
}
const newIndexDefinition = () => ({ name: newName(), collection: newName(), field_name: 'n', index_type: 'number' });

/**
 * A request of each changing route, by the id of the route; each call makes one that changes something again. Encrypted
 * indexes must cost nothing.
 */
export const changingRequests: Readonly<Record<string, MakeRequest>> = {
  store: (app) => {
    const body = { root: `${app.appId}::docs`, data: [{ n: 2 }] };
    return { path: '/store', body, other: { body: { ...body, data: [{ n: 3 }] } } };
  },
  putDocument: withBody(
    () => `collections/docs/documents/${newName()}`,
    () => ({ n: 2 }),
    { n: 3 },
  ),
  patchDocument: withBody(newDocument, () => ({ n: 2 }), { n: 3 }),
  deleteDocument: async (app) => ({
    path: pathOf(app, await newDocument(app)),
    other: { headers: { 'if-match': '"1"' } },
  }),
  batch: withBody('batch', () => ({ operations: [{ operation: 'create', collection: 'docs', data: { n: 4 } }] }), {
    atomic: true,
  }),
  createView: withBody('views', () => ({ name: newName(), source_collections: ['docs'], query: {} }), {
    query: { limit: 1 },
  }),
  changeView: withBody(
    async (app) => `views/${await newView(app)}`,
    () => ({ query: { limit: 2 } }),
    {
      query: { limit: 1 },
    },
  ),
  deleteView: bare(async (app) => `views/${await newView(app)}`),
  refreshView: bare(async (app) => `views/${await newView(app)}/refresh`),
  createQuery: withBody('queries', () => ({ name: newName(), source_collection: 'docs', base_query: {} }), {
    description: 'other',
  }),
  deleteQuery: bare(async (app) => `queries/${await newQuery(app)}`),
  putDataset: withBody(
    () => `datasets/${newName()}`,
    () => ({ values: [1, 2] }),
    { values: [3] },
  ),
  deleteDataset: bare(async (app) => `datasets/${await newDataset(app)}`),
  uploadBlob: (app) => ({
    path: pathOf(app, 'blobs/files'),
    body: 'bytes',
    headers: { 'content-type': 'text/plain' },
    other: { body: 'other bytes' },
  }),
  putBlob: (app) => ({
    path: pathOf(app, `blobs/files/${randomUUID()}`),
    body: 'bytes',
    headers: { 'content-type': 'text/plain' },
    other: { body: 'other bytes' },
  }),
  importFile: (app) => ({
    path: pathOf(app, 'collections/docs/import'),
    body: JSON.stringify({ id: newName() }),
    headers: { 'content-type': 'application/x-ndjson' },
    other: { body: JSON.stringify({ id: newName() }) },
  }),
  createImport: withBody('imports', () => ({ collection: 'docs', format: 'json' }), { format: 'csv' }),
  deleteImport: bare(async (app) => {
    const begun = await succeed(app, 'POST', 'imports', { collection: 'docs' });
    return `imports/${String(begun['import_id'])}`;
  }),
  deleteBlob: bare(async (app) => `blobs/${await newBlob(app)}`),
  createCollection: withBody('collections', () => ({ name: newName() }), { namespace: 'other' }),
  updateCollection: withBody(
    async (app) => `collections/${await newCollection(app)}`,
    () => ({ namespace: 'one' }),
    { namespace: 'other' },
  ),
  deleteCollection: bare(async (app) => `collections/${await newCollection(app)}`, 'force=true'),
  setRetention: withBody(
    async (app) => `collections/${await newCollection(app)}/retention`,
    () => ({ retention_days: 30 }),
    { retention_days: 31 },
  ),
  createIndex: withBody('indexes', newIndexDefinition, { field_name: 'm' }),
  createIndexOfCollection: withBody(
    async (app) => `collections/${await newCollection(app)}/indexes`,
    () => ({ name: newName(), field_name: 'n', index_type: 'number' }),
    { field_name: 'm' },
  ),
  deleteIndexOfApplication: bare(async (app) => {
    const { collection } = await newIndex(app);
    return `indexes/${collection}_n_index`;
  }),
  deleteIndex: bare(async (app) => {
    const { collection, name } = await newIndex(app);
    return `collections/${collection}/indexes/${name}`;
  }),
  rebuildIndex: bare(async (app) => {
    const { collection, name } = await newIndex(app);
    return `collections/${collection}/indexes/${name}/rebuild`;
  }),
  rotateDataKey: bare(async (app) => {
    await succeed(app, 'POST', 'indexes', { ...newIndexDefinition(), index_type: 'encrypted' });
    return 'encryption/rotate';
  }),
  createRelation: withBody(
    'relations',
    () => ({ parent_collection: 'docs', parent_field: 'id', child_collection: 'docs', child_field: newName() }),
    { child_field: 'other' },
  ),
  createKey: withBody('keys', () => ({ name: newName(), permissions: ['Read'] }), { permissions: ['Write'] }),
  regenerateKey: withBody('regenerate-key', () => ({ name: newName(), permissions: ['Read'] }), {
    permissions: ['Write'],
  }),
  revokeKey: bare(async (app) => {
    const key = await succeed(app, 'POST', 'regenerate-key', { name: newName(), permissions: ['Read'] });
    return `keys/${String(key['key_id'])}`;
  }),
  updatePayoutSettings: withBody('payout/settings', () => ({ min_payout: ++made }), { min_payout: 1_000_000 }),
  triggerPayout: async (app) => {
    await fundWallet(app, 100_000);
    const body = { amount: 60_000, payout_address: newWallet().address };
    return { path: pathOf(app, 'payout/trigger'), body, other: { body: { ...body, amount: 61_000 } } };
  },
  fundWallet: async (app) => {
    const body = { amount: ++made };
    await expectEarnings(app, body.amount);
    return { path: pathOf(app, 'faucet'), body, other: { body: { amount: 1_000_000 } } };
  },
  createGrant: () => {
    const [path, wallet] = ['/api/authz/grants', newWallet()];
    return { path, wallet, body: { limit_utia: 1_000 }, other: { body: { limit_utia: 2_000 } } };
  },
  revokeGrant: async (app) => {
    const [path, wallet, body] = ['/api/authz/grants', newWallet(), { limit_utia: 1_000 }];
    const made = await app.call('POST', path, JSON.stringify(body), signedBy(wallet, 'POST', path, body));
    const own = `${path}/${String(made.body['grant_id'])}`;
    return { path: own, wallet, other: { path: `${own}?other=1` } };
  },
  putSkills: ({ appId }) => ({
    path: `/api/skills/${appId}/skills.md`,
    body: { markdown: newName() },
    other: { body: { markdown: 'other' } },
  }),
  createApplication: () => ({
    path: '/api/applications',
    body: { app_id: `granary-${randomUUID()}`, name: 'One' },
    other: { body: { name: 'Other' } },
  }),
  updateApplication: ({ appId }) => ({
    path: `/api/applications/${appId}`,
    body: { payment_networks: null },
    other: { body: { payment_networks: ['granary-simulated'] } },
  }),
  deleteApplication: async (app) => {
    const appId = `granary-${randomUUID()}`;
    await app.call('POST', '/api/applications', { app_id: appId, name: 'One' }, { 'x-operator-key': operatorKey });
    const path = `/api/applications/${appId}`;
    return { path, other: { path: `${path}?other=1` } };
  },
};
