import { newTicket } from '@granary/shared/ids';
import type { Pool } from '@granary/shared/postgres/pool';
import { eventually } from '@granary/testing/eventually';
import { startPostgresProxy } from '@granary/testing/postgres-proxy';
import { size } from '@granary/testing/size';
import { newApp, storeRequest, type App, type DataService } from './support/data-service';
import { parse } from './support/query-fixture';
import { startCopy, startTwoCopies } from './support/write-fixture';

const readsMax = size({ run: 300, long: 10_000 });
/** Of COMMITs, of which two of three are cut. */
const commitsMax = size({ run: 30, long: 150 });
const writersCount = 8;
const readersCount = 8;

let url: string;
let pool: Pool;
let one: DataService;
let two: DataService;
let app: App;
let stop: () => Promise<void>;
beforeAll(async () => {
  ({ url, pool, one, two, stop } = await startTwoCopies());
});
afterAll(() => stop());
beforeEach(async () => {
  app = await newApp(one);
  await one.methods.createCollection({ appId: app.appId, name: 'docs', schemaJson: '', readAccess: 'public' });
  await createView('copy', { find: { n: { $gte: 0 } } }, { w: 'w', n: 'n' });
  await createView(
    'counts',
    { group_by: ['w'], aggregate: { count: { $count: '*' }, sum: { $sum: 'n' } } },
    { w: 'w' },
  );
});

async function createView(name: string, query: object, variables: object): Promise<void> {
  const ticketId = newTicket('j', app.number);
  await one.methods.createView({
    appId: app.appId,
    appNumber: app.number.toString(),
    name,
    queryJson: Buffer.from(JSON.stringify(query)),
    sourceCollections: ['docs'],
    refreshMode: 'live',
    variablesJson: Buffer.from(JSON.stringify(variables)),
    readAccess: '',
    ticketId,
  });
  await eventually(async () => (await one.methods.getJob({ ticketId })).status === 'Completed');
}

const read = async (copy: DataService, name: string, query: Record<string, string> = {}) => {
  const parameters = Object.entries(query).map(([parameter, value]) => ({ name: parameter, value }));
  return parse(await copy.methods.readView({ appId: app.appId, name, parameters, mayReadPrivate: false })).records;
};
const store = (copy: DataService, document: object) => copy.methods.store(storeRequest(app, 'docs', [document]));

test('a reader that sees a document in /list sees it in every live view, on either replica, while eight writers write', async () => {
  let [reads, isDone] = [0, false];
  const written = Array.from({ length: writersCount }, () => 0);
  const write = async (w: number): Promise<void> => {
    while (!isDone) {
      await store(w % 2 === 0 ? one : two, { id: `${w}-${written[w]}`, w, n: written[w]! });
      written[w]! += 1;
    }
  };
  const look = async (reader: number): Promise<void> => {
    const copy = reader % 2 === 0 ? one : two;
    while (reads < readsMax) {
      reads += 1;
      const w = (reader + reads) % writersCount;
      // The newest that may be there, seen or not yet.
      const ids = [0, 1, 2].map((ahead) => `${w}-${Math.max(0, written[w]! - ahead)}`);
      const body = Buffer.from(JSON.stringify({ root: `${app.appId}::docs`, find: { id: { in: ids } }, sort: ['-n'] }));
      const [seen] = parse(await copy.methods.listDocuments({ appId: app.appId, body })).records;
      if (!seen) continue;
      const n = Number(seen['n']);
      const [[document], [group]] = await Promise.all([
        read(copy, 'copy', { w: String(w), n: String(n) }),
        read(copy, 'counts', { w: String(w) }),
      ]);
      expect(document).toEqual(seen);
      expect(Number(group?.['count'])).toBeGreaterThan(n);
    }
  };
  const writers = written.map((_, w) => write(w));
  await Promise.all(Array.from({ length: readersCount }, (_, reader) => look(reader))).finally(() => (isDone = true));
  await Promise.all(writers);
  for (const [w, count] of written.entries()) {
    const sum = (count * (count - 1)) / 2;
    expect(await read(one, 'counts', { w: String(w) })).toEqual([{ w, count, sum }]);
  }
  const broken = await pool.query(`select from view where app_number = ${app.number} and status <> 'ready'`);
  expect(broken.rows).toHaveLength(0);
});

test('a connection that is cut at COMMIT again and again leaves every live view with the documents that were stored', async () => {
  let isArmed = false;
  let seen = 0;
  const proxy = await startPostgresProxy(url, () => {
    const fates = ['pass', 'cut after', 'cut before'] as const;
    return isArmed ? fates[seen++ % 3]! : 'pass';
  });
  const copies = await Promise.all([startCopy(proxy.url), startCopy(proxy.url)]);
  try {
    isArmed = true;
    await Promise.all(
      copies.map(async (copy, w) => {
        for (let n = 0; seen < commitsMax; n += 1) {
          const request = storeRequest(app, 'docs', [{ id: `${w}-${n % 20}`, w, n }]);
          await eventually(() =>
            copy.methods.store(request).then(
              () => true,
              ({ code }: { code: string }) => {
                if (code !== 'UNAVAILABLE') throw new Error(`the write was refused: ${code}`);
                return undefined;
              },
            ),
          );
        }
      }),
    );
    isArmed = false;
    const body = Buffer.from(JSON.stringify({ root: `${app.appId}::docs`, limit: 1_000 }));
    const { records } = parse(await one.methods.listDocuments({ appId: app.appId, body }));
    expect(await read(one, 'copy', { limit: '1000' })).toEqual(records);
    for (const w of [0, 1]) {
      const own = records.filter((record) => record['w'] === w);
      const sum = own.reduce((total, { n }) => total + Number(n), 0);
      expect(await read(one, 'counts', { w: String(w) })).toEqual([{ w, count: own.length, sum }]);
    }
  } finally {
    isArmed = false;
    await Promise.all(copies.map((copy) => copy.stop()));
    await proxy.stop();
  }
});
