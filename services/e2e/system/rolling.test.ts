import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { describeWith, isSkippedWithout, releaseBeforeForTests } from '@granary/testing/stack';
import { eventually } from '@granary/testing/eventually';
import { size } from '@granary/testing/size';
import { operatorKey, type ListAnswer, type Task } from '../support/granary';
import type { ServiceName } from '@granary/stack/services';
import { services, startTwoOfEach, type TwoOfEach } from './rolling';
import { Balanced, type Reply, type Request } from './rolling-client';
import { openShop, type Shop } from './rolling-payments';

const appId = 'rolling';
const app = `/api/apps/${appId}`;
/** So much further each client comes between the steps of the upgrade. */
const rounds = size({ run: 5, long: 10 });

/**
 * Clients that go on until told to stop. They note what was acknowledged, and everything that should not have happened.
 */
class Load {
  readonly failures: string[] = [];
  readonly done: Record<string, number> = {};
  readonly stored: string[] = [];
  readonly uploaded = new Map<string, Buffer>();
  /** Whether copies of the release before are among those that answer. */
  isBeforeRunning = true;
  /** How many requests without a ticket the release before has answered 503, so that their outcome is not known. */
  cutOff = 0;
  private readonly loops: Array<Promise<void>>;
  private stopped = false;

  constructor(
    private readonly gateways: Balanced,
    readonly key: string,
    readonly shop: Shop,
  ) {
    this.loops = [
      ...[1, 2, 3].map((writer) => this.repeat('write', (n) => this.write(`${writer}-${n}`))),
      ...[1, 2].map(() => this.repeat('read', () => this.read())),
      this.repeat('upload', () => this.upload()),
      this.repeat('download', () => this.download()),
      this.repeat('query', (n) => this.query(n)),
      this.repeat('view', () => this.view()),
      this.repeat('wallet', (n) => this.wallet(n)),
      this.repeat('payment', () => this.payment()),
      this.repeat('read by key', () => shop.readByKey()),
      this.repeat('read by payment', () => shop.readByPayment()),
      this.repeat('write by key', (n) => shop.orderByKey(n)),
      this.repeat('write by payment', (n) => shop.orderByPayment(n)),
    ];
  }

  async stop(): Promise<void> {
    this.stopped = true;
    await Promise.all(this.loops);
  }

  /** Resolves when each kind of client has come `rounds` further. */
  async goesOn(rounds: number): Promise<void> {
    const goals = Object.entries(this.done).map(([kind, done]) => [kind, done + rounds] as const);
    await eventually(async () => goals.every(([kind, goal]) => this.done[kind]! >= goal), 60_000);
  }

  private async repeat(kind: string, once: (n: number) => Promise<void>): Promise<void> {
    this.done[kind] = 0;
    for (let n = 0; !this.stopped; n++) {
      await once(n).catch((error: Error) => this.failures.push(`${kind}: ${error.message}`));
      this.done[kind]++;
      await delay(10);
    }
  }

  private async send(method: string, path: string, expected: number, request: Request = {}): Promise<Reply> {
    const reply = await this.gateways.send(method, path, { key: this.key, ...request });
    return expectStatus(reply, expected, `${method} ${path}`);
  }

  private async write(id: string): Promise<void> {
    await this.send('POST', '/store', 202, { body: { root: `${appId}::notes`, data: [{ id }] } });
    this.stored.push(id);
  }

  private async read(): Promise<void> {
    const id = this.stored.at(-1);
    const body = { root: `${appId}::notes`, find: { id: id ?? 'none' } };
    const { records } = (await this.send('POST', '/list', 200, { body })).json<ListAnswer<unknown>>();
    if (records.length !== (id === undefined ? 0 : 1)) throw new Error(`${id} is there ${records.length} times`);
  }

  private async upload(): Promise<void> {
    const body = randomBytes(100_000);
    const headers = { 'content-type': 'image/png' };
    const reply = await this.send('POST', `/apps/${appId}/blobs/files`, 202, { body, headers });
    this.uploaded.set(reply.json<{ blob_id: string }>().blob_id, body);
  }

  private async download(): Promise<void> {
    const [blobId, bytes] = [...this.uploaded].at(-1) ?? [];
    if (blobId === undefined) return;
    const { body } = await this.send('GET', `/apps/${appId}/blobs/files/${blobId}`, 200);
    if (!body.equals(bytes!)) throw new Error(`${blobId} has other bytes`);
  }

  /** Neither of these carries a ticket: done twice, the first would be a conflict and the second not found. */
  private async query(n: number): Promise<void> {
    const name = `query_${n}`;
    const body = { name, source_collection: 'notes', base_query: {} };
    const isMade = await this.isDone('POST', `${app}/queries`, 201, { body });
    if (isMade) await this.isDone('DELETE', `${app}/queries/${name}`, 200);
  }

  /** False where the outcome of a request is not known. */
  private async isDone(method: string, path: string, expected: number, request: Request = {}): Promise<boolean> {
    const reply = await this.gateways.send(method, path, { key: this.key, ...request });
    const isCutOff = reply.status === 503 && this.isBeforeRunning;
    if (isCutOff) this.cutOff += 1;
    else expectStatus(reply, expected, `${method} ${path}`);
    return !isCutOff;
  }

  private async view(): Promise<void> {
    const asked = await this.send('POST', `${app}/views/all/refresh`, 202);
    await this.ended(asked.json<{ ticket_id: string }>().ticket_id);
    await this.send('GET', `/api/views/${appId}/all/data`, 200);
  }

  async ended(ticketId: string): Promise<void> {
    await eventually(async () => {
      const { status } = (await this.send('GET', `/api/tasks/${ticketId}`, 200)).json<Task>();
      if (typeof status === 'object') throw new Error(`task ${ticketId}: ${JSON.stringify(status)}`);
      return status === 'Completed';
    });
  }

  private async wallet(n: number): Promise<void> {
    const min_payout = n + 1;
    await this.send('POST', `${app}/payout/settings`, 200, { body: { min_payout } });
    const found = (await this.send('POST', `${app}/payout/info`, 200)).json<{ settings: { min_payout: number } }>();
    if (found.settings.min_payout !== min_payout) throw new Error(`${min_payout} became ${found.settings.min_payout}`);
    await this.send('GET', `${app}/wallet`, 200);
  }

  private async payment(): Promise<void> {
    const body = { paymentPayload: {}, paymentRequirements: {} };
    const found = (await this.send('POST', '/x402/verify', 200, { body })).json<{ invalidReason: string }>();
    if (found.invalidReason !== 'invalid_x402_version') throw new Error(`found ${found.invalidReason}`);
  }
}

function expectStatus(reply: Reply, expected: number, what: string): Reply {
  if (reply.status === expected) return reply;
  throw new Error(`${what}: ${reply.status} ${reply.body.toString().slice(0, 300)}`);
}

/**
 * The release before has answered one such request 503 while the copy of data that it had reached was replaced, in one
 * of several runs, as the API allows. Copies of this release are replaced without any in the proof of the chart.
 */
const cutOffMax = 2;

/**
 * What each service is asked in this test, over the ways that there are: streams, calls of their own, and the byte hop.
 */
const hops: Array<[service: (typeof services)[number], metric: RegExp]> = [
  ['data', /^granary_rpc_requests_total\{method="granary.data.v1.Data\/Store",direction="server",code="OK"\} [1-9]/m],
  [
    'data',
    /^granary_rpc_requests_total\{method="granary.data.v1.Data\/CreateQuery",direction="server",code="OK"\} [1-9]/m,
  ],
  // Called by the copy of blobs to which the bytes have gone.
  [
    'blobs',
    /^granary_rpc_requests_total\{method="granary.data.v1.Data\/CommitUpload",direction="client",code="OK"\} [1-9]/m,
  ],
  [
    'finance',
    /^granary_rpc_requests_total\{method="granary.finance.v1.Finance\/GetWallet",direction="server",code="OK"\} [1-9]/m,
  ],
  [
    'payments',
    /^granary_rpc_requests_total\{method="granary.payments.v1.Payments\/VerifyPayment",direction="server",.*\} [1-9]/m,
  ],
  [
    'payments',
    /^granary_rpc_requests_total\{method="granary.payments.v1.Payments\/SettlePayment",direction="server",code="OK"\} [1-9]/m,
  ],
  [
    'payments',
    /^granary_rpc_requests_total\{method="granary.payments.v1.Payments\/CompleteSpend",direction="server",code="OK"\} [1-9]/m,
  ],
  [
    'tasks',
    /^granary_rpc_requests_total\{method="granary.tasks.v1.Tasks\/GetTask",direction="server",code="OK"\} [1-9]/m,
  ],
  ['gateway', /^granary_http_requests_total\{method="POST",route="\/store",status="202"\} [1-9]/m],
];

describeWith(
  describe,
  'kafka',
  'minio',
)('two copies of each service, of the release before', () => {
  let granary: TwoOfEach;
  let gateways: Balanced;
  let load: Load;
  beforeAll(async () => {
    // Where it is missing the run has said so, and this release takes its place.
    granary = await startTwoOfEach(isSkippedWithout('release') ? undefined : await releaseBeforeForTests());
    gateways = new Balanced(granary.urls);
    await gateways.whenAllReady();
    const made = await gateways.send('POST', '/api/applications', {
      body: { app_id: appId, name: 'Rolling' },
      headers: { 'x-operator-key': operatorKey },
    });
    const key = made.json<{ app_key: string }>().app_key;
    await gateways.send('POST', '/store', { key, body: { root: `${appId}::notes`, data: [{ id: 'first' }] } });
    const view = { name: 'all', query: { group_by: ['id'] }, source_collections: ['notes'] };
    const viewMade = await gateways.send('POST', `${app}/views`, { key, body: view });
    expect([viewMade.status, viewMade.body.toString()]).toEqual([202, expect.any(String)]);
    load = new Load(gateways, key, await openShop(gateways, appId, key));
  });
  afterAll(async () => {
    await load?.stop();
    await gateways?.stop();
    await granary?.stop();
  });

  test('the release before serves on the schema of this one, and starts on it', async () => {
    await load.goesOn(rounds);
    await granary.migrate();
    await load.goesOn(rounds);
    for (const service of services) await replace(service, 0, 'first');
    expect(load.failures).toEqual([]);
  });

  test('each replica is replaced under load, and no request fails', async () => {
    // Between the rounds every service calls, and is called by, both releases.
    for (const copy of [0, 1]) {
      for (const service of services) await replace(service, copy, 'sources');
      await load.goesOn(rounds);
    }
    expect(load.cutOff).toBeLessThanOrEqual(cutOffMax);
    load.isBeforeRunning = false;
  });

  test('both replicas of each service serve a share of its calls', async () => {
    await load.goesOn(2 * rounds);
    for (const [service, metric] of hops) {
      for (const copy of [0, 1]) {
        await eventually(async () => metric.test(await granary.metrics(service, copy)), 30_000);
      }
    }
    expect(load.failures).toEqual([]);
  });

  test('no request was lost or applied twice', async () => {
    await load.stop();
    expect(load.failures).toEqual([]);

    const stored = await storedIds('notes');
    expect(stored.sort()).toEqual(['first', ...load.stored].sort());
    expect((await storedIds('orders')).sort()).toEqual(load.shop.ordered.toSorted());
    expect((await storedIds('files')).sort()).toEqual([...load.uploaded.keys()].sort());
    for (const [blobId, bytes] of load.uploaded) {
      const { status, body } = await gateways.send('GET', `/apps/${appId}/blobs/files/${blobId}`);
      expect([blobId, status, body.equals(bytes)]).toEqual([blobId, 200, true]);
    }
  });

  async function replace(service: ServiceName, copy: number, by: 'sources' | 'first'): Promise<void> {
    await granary.replace(service, copy, by);
    // The next one follows at once; only gateways are waited for, as a balancer does.
    if (service === 'gateway') await gateways.whenAllReady();
    expect([service, copy, load.failures]).toEqual([service, copy, []]);
  }

  /** The ids of all versions of all documents: one that was stored twice is there twice. */
  async function storedIds(collection: string): Promise<string[]> {
    const ids: string[] = [];
    for (let offset = 0; ; offset += 10_000) {
      const query = { include_history: true, sort: ['id'], select: ['id'], limit: 10_000, offset };
      const body = { root: `${appId}::${collection}`, ...query };
      const reply = await gateways.send('POST', '/list', { key: load.key, body });
      const { records } = reply.json<ListAnswer<{ id: string }>>();
      ids.push(...records.map(({ id }) => id));
      if (records.length < 10_000) return ids;
    }
  }
});
