import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { seededRandom } from '../../data/test/support/random';
import { viewGenerator, type GeneratedView } from '../../data/test/support/view-generator';
import { viewRecords, type Source, type ViewMeaning } from '../../data/test/support/view-reference';
import { databaseServices, type DatabaseService } from '@granary/local/start/constellation';
import { newApp, operatorKey, send, type ListAnswer } from '../support/granary';
import { endAllProcesses, endProcess, forkTracked } from '../support/own-process';
import type { GranaryOrders } from './view-process';

const kills = size({ run: 3, long: 100 });
const writers = 4;
const liveViews = 12;
const lazyViews = 4;
// The clients go on side by side, so the seed gives the same views, but not the same writes.
const seed = seedOf('crashes of views');
const random = seededRandom(seed);
const generator = viewGenerator(random);
// By the first or the last document groups depend on the order of writes, which is not known where an answer was lost.
const operators = ['count', 'count_distinct', 'sum', 'avg', 'min', 'max'];

const collections = ['base', 'other'] as const;
type Collection = (typeof collections)[number];
type Document = { id: string } & Record<string, unknown>;
interface CrashView {
  name: string;
  mode: string;
  view: ViewMeaning;
  query: object;
  sourceCollections: string[];
}

/** The last versions of documents that were acknowledged; undefined while an answer is missing. */
type LastVersions = Record<Collection, Map<string, Document | undefined>>;

let directory: string;
let orders: GranaryOrders;
let database: Client;
/** Two copies of all services on the same databases. */
const copies: Array<{ child: ChildProcess; url: string }> = [];
let appId: string;
let key: string;
const views: CrashView[] = [];

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'granary-views-'));
  const urls = await Promise.all(databaseServices.map(async (name) => [name, (await testDatabase()).url] as const));
  const databaseUrls = Object.fromEntries(urls) as Record<DatabaseService, string>;
  orders = { databaseUrls, directory, operatorKey };
  for (const copy of [0, 1]) await start(copy);
  database = new Client({ connectionString: databaseUrls.data });
  await database.connect();
  ({ appId, key } = await newApp(copies[0]!));
});
afterAll(async () => {
  await endAllProcesses();
  await database?.end();
  await rm(directory, { recursive: true, force: true });
});

async function start(copy: number): Promise<void> {
  const child = await forkTracked(join(__dirname, 'view-process.ts'));
  child.send(orders);
  const [url] = (await once(child, 'message')) as [string];
  copies[copy] = { child, url };
}

/** By any copy. Undefined where no answer came, or that the service is not available. */
async function call<T = Record<string, unknown>>(method: string, path: string, body?: object) {
  const { url } = copies[random(copies.length)]!;
  const answer = await send<T>(url, method, path, { key, ...(body && { body }) }).catch(() => undefined);
  return answer && [429, 503, 504].includes(answer.status) ? undefined : answer;
}
const definite = <T>(method: string, path: string, body?: object) =>
  eventually(() => call<T>(method, path, body), 60_000);

const store = (collection: Collection, data: object[]) =>
  call('POST', '/store', { root: `${appId}::${collection}`, data });
const createView = ({ name, query, mode, sourceCollections }: CrashView) =>
  call('POST', `/apps/${appId}/views`, { name, query, source_collections: sourceCollections, refresh_mode: mode });

/** Documents meet by an id on one side at least: by a field of few values they would be too many pairs for a page. */
function makeView(): GeneratedView {
  for (;;) {
    const made = generator.makeView({ isLive: true, operators });
    const fields = made.view.joins.flatMap(({ on }) => on);
    if (fields.every(({ path, to }) => [path, to].includes('id') && [path, to].every((name) => /id|ref/.test(name))))
      return made;
  }
}

/** Clients that write, erase, build views anew, change and replace them, until they are stopped. */
class Clients {
  acknowledged = 0;
  private isStopped = false;
  private readonly loops = [
    ...Array.from({ length: writers }, (_, writer) => this.loop(() => this.write(writer))),
    this.loop(() => this.changeViews()),
  ];
  readonly last: LastVersions = { base: new Map(), other: new Map() };

  stop(): Promise<unknown> {
    this.isStopped = true;
    return Promise.all(this.loops);
  }

  private async loop(step: () => Promise<void>): Promise<void> {
    // The fields of this object are there.
    await Promise.resolve();
    while (!this.isStopped) await step();
  }

  private async write(writer: number): Promise<void> {
    const ids = `${writer}-`;
    const collection = collections[random(2)]!;
    if (random(15) === 0) return this.erase(collection, `${ids}${random(30)}`);
    const isBulk = random(10) === 0;
    const padding = isBulk ? 'x'.repeat(1_200) : '';
    const made = Array.from({ length: isBulk ? 120 : 1 + random(6) }, (_, at) => ({
      ...generator.makeDocument(`${ids}${isBulk ? at : random(30)}`),
      ref: `${random(writers)}-${random(30)}`,
      ...(random(6) === 0 ? { deleted: true } : { padding }),
    }));
    const documents = [...new Map(made.map((document) => [document.id, document as Document])).values()];
    const last = this.last[collection];
    for (const { id } of documents) last.set(id, undefined);
    const answer = await store(collection, documents);
    if (!answer) return;
    expect([answer.status, answer.text]).toEqual([202, answer.text]);
    for (const document of documents) last.set(document.id, document);
    this.acknowledged += 1;
  }

  private async erase(collection: Collection, id: string): Promise<void> {
    const last = this.last[collection];
    last.set(id, undefined);
    const answer = await call('DELETE', `/api/apps/${appId}/collections/${collection}/documents/${id}?erase=true`);
    if (!answer) return;
    expect([200, 404]).toContain(answer.status);
    last.set(id, { id, deleted: true });
    this.acknowledged += 1;
  }

  private async changeViews(): Promise<void> {
    const view = views[random(views.length)]!;
    const path = `/apps/${appId}/views/${view.name}`;
    const choice = random(4);
    if (choice > 1) {
      const answer = await call('POST', `${path}/refresh`);
      expect([202, 404, undefined]).toContain(answer?.status);
    } else if (choice === 1) {
      const mode = view.mode === 'live' ? 'lazy' : 'live';
      await call('PUT', path, { query: {}, source_collections: ['base'], refresh_mode: mode });
      const { query, sourceCollections } = view;
      const own = { query, source_collections: sourceCollections, refresh_mode: view.mode };
      const back = await definite('PUT', path, own);
      expect([200, 202, 404]).toContain(back.status);
    } else {
      const gone = await call('DELETE', path);
      expect([200, 404, undefined]).toContain(gone?.status);
      const made = await createView(view);
      expect([202, 409, undefined]).toContain(made?.status);
    }
  }
}

/** What a collection has, which includes all that was acknowledged. */
async function present(collection: Collection, last: ReadonlyMap<string, Document | undefined>): Promise<Document[]> {
  const query = { root: `${appId}::${collection}`, sort: ['id'], limit: 10_000 };
  const listed = await definite<ListAnswer<Document>>('POST', '/list', query);
  const records = listed.body.records.filter((record) => record['deleted'] !== true);
  const found = new Map(records.map((record) => [record.id, record]));
  for (const [id, document] of last) {
    if (!document) continue;
    expect([id, found.get(id)]).toEqual([id, document['deleted'] === true ? undefined : document]);
  }
  return records;
}

/** Members in one order: a partner takes the place of a member of its name. */
const canonical = (_: string, value: unknown): unknown =>
  value !== null && typeof value === 'object' && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
    : value;
const compared = (records: readonly unknown[]): string[] =>
  records.map((value) => JSON.stringify(value, canonical)).sort();

async function checkViews(moment: object, last: LastVersions): Promise<void> {
  const sources = new Map<string, Source>();
  for (const collection of collections) {
    const documents = (await present(collection, last[collection])).map((document, place) => ({ document, place }));
    sources.set(collection, { documents, dates: new Set() });
  }
  for (const { name, mode, view, query } of views) {
    const { status, body } = await definite<ListAnswer<object>>('GET', `/api/views/${appId}/${name}/data?limit=10000`);
    const seen = { moment, name, mode, query, status, records: compared(body.records) };
    expect(seen).toEqual({ ...seen, status: 200, records: compared(viewRecords(view, sources)) });
  }
}

/** Waits until all views are whole and no job is left. */
async function settled(): Promise<void> {
  for (const view of views) await eventually(async () => (await createView(view)) !== undefined, 60_000);
  await eventually(async () => {
    const left = await database.query(`select from job where status in ('Pending', 'StoringData')`);
    const unready = await database.query(`select from view where status <> 'ready'`);
    return left.rowCount === 0 && unready.rowCount === 0;
  }, 120_000);
}

/** No table of a build is left: there are those that views name. */
async function checkTables(): Promise<void> {
  const tables = (text: string) =>
    database.query<{ name: string }>(text).then(({ rows }) => rows.map(({ name }) => name));
  await eventually(async () => {
    const there = await tables(
      `select substr(relname, 3) as name from pg_class where relname ~ '^[vwj]_[0-9]+$' and relkind = 'r' and relnamespace::regnamespace::text ~ '^a_'`,
    );
    const used = await tables('select table_number::text as name from view');
    return there.every((name) => used.includes(name)) && used.every((name) => there.includes(name));
  });
}

test(`after ${kills} times kill -9 of one copy or both amid writes, erasures and builds every view has the rows of its meaning, and no table is left (seed ${seed})`, async () => {
  for (const collection of collections) await store(collection, [{ id: '0-0' }]);
  for (let at = 0; at < liveViews + lazyViews; at += 1) {
    const { view, query, sourceCollections } = makeView();
    // Of rows beyond a limit those of equal places may be any.
    const whole = { ...view, limit: undefined, sort: [] };
    const named = { ...query, limit: undefined, sort_by: undefined };
    const mode = at < liveViews ? 'live' : 'lazy';
    views.push({ name: `v${at}`, mode, view: whole, query: named, sourceCollections });
  }
  for (const view of views) expect((await createView(view))?.status).toBe(202);
  const last: LastVersions = { base: new Map(), other: new Map() };
  for (let kill = 0; kill < kills; kill += 1) {
    const clients = new Clients();
    const goal = 5 + random(30);
    await eventually(() => clients.acknowledged >= goal, 60_000);
    const killed = kill % 3 === 2 ? [0, 1] : [random(2)];
    await Promise.all(killed.map((copy) => endProcess(copies[copy]!.child, 'SIGKILL')));
    // All leases end, as those of processes that are gone do by time, and those of processes that stand still.
    await database.query('update job set leased_until = now() where leased_until > now()');
    // The other copy goes on alone for a while.
    const alone = clients.acknowledged + 5;
    if (killed.length === 1) await eventually(() => clients.acknowledged >= alone, 60_000);
    const stopped = clients.stop();
    await Promise.all(killed.map(start));
    await stopped;
    for (const name of collections) for (const [id, document] of clients.last[name]) last[name].set(id, document);
    await settled();
    const lazy = views.filter(({ mode }) => mode === 'lazy');
    for (const { name } of lazy) await definite('POST', `/apps/${appId}/views/${name}/refresh`);
    await settled();
    await checkViews({ kill }, last);
    await checkTables();
  }
});
