import { newTicket } from '@granary/shared/ids';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { noIdempotency } from './support/data-service';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';

let fixture: Fixture;
let app: TestApp;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());
beforeEach(async () => {
  app = await fixture.newApp();
  await app.createCollection('docs');
});

async function create(name: string, query: object, refreshMode: string): Promise<string> {
  const ticketId = newTicket('j', app.number);
  await fixture.methods.createView({
    appId: app.appId,
    appNumber: app.number.toString(),
    name,
    queryJson: Buffer.from(JSON.stringify(query)),
    sourceCollections: ['docs'],
    refreshMode,
    variablesJson: Buffer.from(''),
    readAccess: '',
    ticketId,
  });
  return ticketId;
}

const refresh = async (name: string): Promise<string> =>
  (await fixture.methods.refreshView({ appId: app.appId, name, ticketId: newTicket('j', app.number) })).ticketId;
const rows = async <T>(text: string, ...values: unknown[]): Promise<T[]> =>
  (await fixture.pool.query(text, values)).rows as T[];
const isReady = async (name: string): Promise<boolean> =>
  (await fixture.methods.getView({ appId: app.appId, name, ticketId: '' })).status === 'ready';
const hasNoJob = async (): Promise<boolean> =>
  (await rows(`select from job where app_number = $1 and status in ('Pending', 'StoringData')`, app.number)).length ===
  0;

/** The tables of the app that hold a text. */
async function tablesWith(text: string): Promise<string[]> {
  const tables = await rows<{ name: string }>(
    `select format('%I.%I', relnamespace::regnamespace, relname) as name from pg_class
     where relkind = 'r' and relnamespace = $1::text::regnamespace`,
    `a_${app.number}`,
  );
  const found: string[] = [];
  for (const { name } of tables) {
    const holding = await rows(
      `select from ${name} t where t::text like $1 or t::text like $2 limit 1`,
      ...[`%${text}%`, `%${Buffer.from(text).toString('hex')}%`],
    );
    if (holding.length > 0) found.push(name);
  }
  return found;
}

describe.each([
  ['lazy', 'documents', {}],
  ['lazy', 'groups', { group_by: 'text', aggregate: { least: { $min: 'text' } } }],
  ['live', 'documents', { sort_by: ['text'] }],
  ['live', 'groups', { group_by: 'text', aggregate: { least: { $min: 'text' }, first: { $first: 'text' } } }],
])('a view that is %s, of %s', (mode, _, query) => {
  test(
    'a document that is erased while the view is built is read no more, and is in none of its tables',
    async () => {
      const texts = Array.from({ length: 3_000 }, (_, at) => JSON.stringify({ id: `d${at}`, text: `text ${at}.` }));
      await app.store('docs', texts);
      await app.completed(await create('v', query, mode));
      for (const at of [0, 1_234, 2_999]) {
        await refresh('v');
        await eventually(
          async () =>
            (await rows('select from view where app_number = $1 and building_table_number is not null', app.number))
              .length > 0 || (await hasNoJob()),
        );
        const named = { appId: app.appId, appNumber: app.number.toString(), collection: 'docs', id: `d${at}` };
        await fixture.methods.eraseDocument({ ...named, ifMatch: null, idempotency: noIdempotency });
        do {
          const filter = JSON.stringify({ text: `text ${at}.` });
          expect((await app.read('readView', 'v', { filter, sort: '-text', limit: '1' })).records).toEqual([]);
        } while (!(await isReady('v')) || !(await hasNoJob()));
        await eventually(async () => (await tablesWith(`text ${at}.`)).length === 0);
      }
      expect((await app.read('readView', 'v', { limit: '1' })).total).toBe(2_997);
    },
    limitMs(120_000),
  );
});

test(
  'more than 20,000 rows are indexed while writers go on, and read by their indexes',
  async () => {
    const count = 20_500;
    const documents = Array.from({ length: count }, (_, at) =>
      JSON.stringify({ id: `d${at}`, n: (at * 7_919) % count }),
    );
    await app.store('docs', documents);
    let [isDone, written] = [false, 0];
    const write = async () => {
      for (; !isDone; written += 1)
        await app.store('docs', [JSON.stringify({ id: `new${written}`, n: count + written })]);
    };
    const build = async () => {
      const tickets = await Promise.all(['lazy', 'live'].map((mode) => create(mode, { sort_by: ['n'] }, mode)));
      for (const ticket of tickets) await app.completed(ticket);
      isDone = true;
    };
    await Promise.all([write(), build()]);
    const indexes = await rows<{ valid: boolean }>(
      `select i.indisvalid as valid from pg_index i join pg_class t on t.oid = i.indrelid
       where t.relnamespace = $1::text::regnamespace and t.relname ~ '^v_'`,
      `a_${app.number}`,
    );
    expect(indexes).toEqual(Array.from({ length: 4 }, () => ({ valid: true })));
    for (const mode of ['lazy', 'live']) {
      const { records } = await app.read('readView', mode, { limit: '10000', offset: '10000' });
      expect(records.map(({ n }) => n)).toEqual(Array.from({ length: 10_000 }, (_, at) => 10_000 + at));
    }
    expect((await app.read('readView', 'live', { limit: '1' })).total).toBe(count + written);
  },
  limitMs(180_000),
);

test(
  'readers of a view that is refreshed see all rows of one state, the newest that a refresh has had',
  async () => {
    const state = (n: number) => Array.from({ length: 300 }, (_, at) => JSON.stringify({ id: `d${at}`, n }));
    await app.store('docs', state(0));
    await app.completed(await create('v', {}, 'lazy'));
    let [refreshed, isDone, reads] = [0, false, 0];
    const read = async () => {
      for (; !isDone; reads += 1) {
        const least = refreshed;
        const { records, total } = await app.read('readView', 'v', { limit: '1000' });
        const states = [...new Set(records.map(({ n }) => Number(n)))];
        expect([total, records.length, states.length]).toEqual([300, 300, 1]);
        expect(states[0]).toBeGreaterThanOrEqual(least);
      }
    };
    const change = async () => {
      for (let n = 1; n <= 30 || reads <= 30; n += 1) {
        await app.store('docs', state(n));
        await app.completed(await refresh('v'));
        refreshed = n;
      }
      isDone = true;
    };
    await Promise.all([change(), ...Array.from({ length: 6 }, read)]);
    expect(reads).toBeGreaterThan(30);
  },
  limitMs(120_000),
);
