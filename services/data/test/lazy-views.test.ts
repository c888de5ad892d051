import { newTicket } from '@granary/shared/ids';
import { eventually } from '@granary/testing/eventually';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { noIdempotency } from './support/data-service';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';
import { seededRandom, type Random } from './support/random';

const queryCount = size({ run: 16, long: 80 });

let fixture: Fixture;
let app: TestApp;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());
beforeEach(async () => {
  app = await fixture.newApp();
});

async function create(name: string, sources: string[], query: object, variables: object = {}): Promise<void> {
  const { ticketId } = await fixture.methods.createView({
    appId: app.appId,
    appNumber: app.number.toString(),
    name,
    queryJson: Buffer.from(JSON.stringify(query)),
    sourceCollections: sources,
    refreshMode: '',
    variablesJson: Buffer.from(JSON.stringify(variables)),
    readAccess: '',
    ticketId: newTicket('j', app.number),
  });
  await app.completed(ticketId);
}

const refresh = async (name: string): Promise<string> =>
  (await fixture.methods.refreshView({ appId: app.appId, name, ticketId: newTicket('j', app.number) })).ticketId;
const read = (name: string, query: Record<string, string> = {}) => app.read('readView', name, query);
const viewTables = async (): Promise<string[]> => {
  const found = await fixture.pool.query<{ name: string }>(
    `select relname as name from pg_class
     where relname ~ '^v_[0-9]+$' and relkind = 'r' and relnamespace = $1::text::regnamespace order by 1`,
    [`a_${app.number}`],
  );
  return found.rows.map(({ name }) => name);
};

/** Keeps builds of views over a collection from reading it, until the function that it returns is called. */
async function holdBuilds(collection: string): Promise<() => Promise<void>> {
  const found = await fixture.pool.query<{ number: string }>(
    'select number::text from collection where app_number = $1 and name = $2',
    [app.number, collection],
  );
  const connection = await fixture.pool.connect();
  await connection.query('begin');
  await connection.query(`lock table a_${app.number}.c_${found.rows[0]!.number} in access exclusive mode`);
  return async () => {
    await connection.query('commit');
    connection.release();
  };
}

/** The connection of a build that waits for its source. */
async function waitingBuild(): Promise<{ pid: number; hasXid: boolean }> {
  let waiting: { pid: number; hasXid: boolean } | undefined;
  await eventually(async () => {
    const found = await fixture.pool.query<{ pid: number; hasXid: boolean }>(
      `select pid, backend_xid is not null as "hasXid" from pg_stat_activity
       where datname = current_database() and wait_event_type = 'Lock' and query like 'declare view_rows%'`,
    );
    waiting = found.rows[0];
    return waiting !== undefined;
  });
  return waiting!;
}

test('while a view is computed no event waits for it, and its old rows are read', async () => {
  await app.createCollection('docs');
  await app.store('docs', ['{"id":"1"}']);
  await create('copy', ['docs'], {});
  const release = await holdBuilds('docs');
  const ticket = await refresh('copy');
  // Events wait for transactions that have written: the one that reads has not.
  expect((await waitingBuild()).hasXid).toBe(false);
  expect((await read('copy')).records).toEqual([{ id: '1' }]);
  await release();
  await app.completed(ticket);
});

test('a build that lost its connection leaves no table behind', async () => {
  await app.createCollection('docs');
  await app.store('docs', ['{"id":"1"}']);
  await create('copy', ['docs'], {});
  const release = await holdBuilds('docs');
  const ticket = await refresh('copy');
  const { pid } = await waitingBuild();
  await app.store('docs2', ['{"id":"1"}']);
  await fixture.pool.query('select pg_terminate_backend($1)', [pid]);
  await release();
  await app.completed(ticket);
  expect(await viewTables()).toHaveLength(1);
  expect((await read('copy')).records).toEqual([{ id: '1' }]);
});

test('a table that a crash left is dropped by the next refresh', async () => {
  await app.createCollection('docs');
  await create('copy', ['docs'], {});
  await fixture.pool.query(`create table a_${app.number}.v_4242 (id text)`);
  await fixture.pool.query('update view set building_table_number = 4242 where app_number = $1', [app.number]);
  await app.completed(await refresh('copy'));
  const tables = await viewTables();
  expect(tables).toHaveLength(1);
  expect(tables).not.toContain('v_4242');
});

test('deleting a view ends its task at once and leaves no table', async () => {
  await app.createCollection('docs');
  await create('copy', ['docs'], {});
  const release = await holdBuilds('docs');
  const ticket = await refresh('copy');
  await waitingBuild();
  await fixture.methods.deleteView({ appId: app.appId, name: 'copy', ticketId: '' });
  await expect(app.completed(ticket)).rejects.toThrow('The view was deleted');
  await release();
  await eventually(async () => (await viewTables()).length === 0);
});

test('refreshes that wait are one, and a view has one build at a time', async () => {
  await app.createCollection('docs');
  await create('copy', ['docs'], {});
  const release = await holdBuilds('docs');
  const running = await refresh('copy');
  await waitingBuild();
  const waiting = await refresh('copy');
  expect(waiting).not.toBe(running);
  expect(await refresh('copy')).toBe(waiting);
  await app.store('others', ['{"id":"1"}']);
  // A view of another collection is built meanwhile, by the worker that the waiting refresh leaves free.
  await create('other', ['others'], {});
  expect((await fixture.methods.getJob({ ticketId: waiting })).status).toBe('Pending');
  await release();
  await Promise.all([running, waiting].map((ticket) => app.completed(ticket)));
});

test('a refresh that fails keeps the old rows and says why', async () => {
  await app.createCollection('docs');
  await app.store('docs', ['{"id":"1","a":1}', '{"id":"2","a":2}']);
  const set = { appId: app.appId, name: 'ones', idempotency: noIdempotency };
  await fixture.methods.putDataset({ ...set, body: Buffer.from('{"values":[1]}') });
  await create('chosen', ['docs'], { find: { a: { inDataset: 'ones' } } });
  await fixture.methods.deleteDataset(set);
  await expect(app.completed(await refresh('chosen'))).rejects.toThrow('names no data set');
  expect((await read('chosen')).records).toEqual([{ id: '1', a: 1 }]);
  const view = await fixture.methods.getView({ appId: app.appId, name: 'chosen', ticketId: '' });
  expect(view).toMatchObject({ status: 'failed', error: expect.stringContaining('names no data set') as string });
  expect(await viewTables()).toHaveLength(1);
});

test('a view has indexes on what it is grouped and sorted by and on what its variables name', async () => {
  await app.createCollection('docs');
  await app.store('docs', ['{"id":"1","a":1,"b":{"c":2},"d":3}']);
  const query = { group_by: ['a', 'b.c'], aggregate: { n: { $count: '*' }, m: { $max: 'd' } }, sort_by: ['-n'] };
  await create('grouped', ['docs'], query, { most: 'm.$lte', a: 'a' });
  const [table] = await viewTables();
  const found = await fixture.pool.query('select indexdef from pg_indexes where schemaname = $1 and tablename = $2', [
    `a_${app.number}`,
    table,
  ]);
  // Its ids, and n, a, b.c, m.
  expect(found.rows).toHaveLength(5);
});

const values = [0, 1, 2.5, -3, 'a', 'b', '', 'x'.repeat(300), 'x'.repeat(301), true, false, null, [1], { y: 1 }];
const instants = ['2024-01-01T00:00:00Z', '2024-01-01T01:00:00+01:00', '2023-06-01T12:00:00Z'];
const times = [...instants, 'soon', 7];

/** Documents, and queries over them. */
function queryGenerator(random: Random) {
  const pick = <T>(from: readonly T[]): T => from[random(from.length)]!;

  function makeDocument(at: number): Record<string, unknown> {
    const document: Record<string, unknown> = { id: `k${String(at).padStart(4, '0')}` };
    for (const field of ['a', 'b']) if (random(6) > 0) document[field] = pick(values);
    if (random(4) > 0) document['d'] = pick(times);
    return document;
  }

  function makeRead(): { find: object; sort: string[] } {
    const field = pick(['a', 'b', 'd']);
    const operand = field === 'd' ? pick(instants) : pick(values.filter((value) => typeof value !== 'object'));
    const condition = pick([{ is: operand }, { isNot: operand }, { gte: operand }, { lt: operand }, { isNull: true }]);
    const sort = Array.from({ length: random(3) }, () => `${pick(['', '-'])}${pick(['a', 'b', 'd'])}`);
    return { find: random(3) === 0 ? {} : { [field]: condition }, sort };
  }

  return { makeDocument, makeRead };
}

test.each(partsOf('queries of lazy views', queryCount))(
  'the rows of a view over all documents answer $cases queries as the documents do, whole and by cursor (seed $seed)',
  async ({ seed, cases }) => {
    const random = seededRandom(seed);
    const { makeDocument, makeRead } = queryGenerator(random);
    await app.createCollection('docs');
    const documents = Array.from({ length: 300 }, (_, at) => JSON.stringify(makeDocument(at)));
    await app.store('docs', documents);
    const schemaJson = JSON.stringify({ fields: { d: { type: 'date' } } });
    await fixture.methods.updateCollection({ appId: app.appId, name: 'docs', schemaJson, force: true });
    await create('plain', ['docs'], {});
    await create('keyed', ['docs'], {}, { a: 'a', b: 'b', d: 'd' });
    for (let round = 0; round < cases; round += 1) {
      const asked = makeRead();
      const list = (root: string, more: object) => app.list({ root: `${app.appId}::${root}`, ...asked, ...more });
      const expected = await list('docs', { limit: 1_000 });
      for (const root of ['plain', 'keyed']) {
        const { records, total } = await list(root, { limit: 1_000 });
        expect({ root, asked, records, total }).toEqual({
          root,
          asked,
          records: expected.records,
          total: expected.total,
        });
        const walked: unknown[] = [];
        let cursor: unknown;
        do {
          const page = await list(root, { limit: 40 + random(100), ...(cursor === undefined ? {} : { cursor }) });
          walked.push(...page.records);
          cursor = page['next_cursor'];
        } while (cursor !== undefined);
        expect({ root, asked, walked }).toEqual({ root, asked, walked: expected.records });
      }
    }
  },
);

test('a variable has the type of its column', async () => {
  await app.createCollection('docs', { fields: { code: { type: 'string' }, at: { type: 'date' } } });
  await app.store('docs', [
    '{"id":"1","code":"5","n":1,"at":"2024-01-01T00:00:00Z"}',
    '{"id":"2","code":"6","n":2,"at":"2024-01-02T00:00:00Z"}',
  ]);
  const query = { group_by: ['code', 'at'], aggregate: { sum: { $sum: 'n' } } };
  await create('sums', ['docs'], query, { code: 'code', least: 'sum.$gte', since: 'at.$gte' });
  expect((await read('sums', { code: '5' })).records).toMatchObject([{ sum: 1 }]);
  expect((await read('sums', { least: '2' })).records).toMatchObject([{ code: '6' }]);
  // The same instant as the second, with another offset.
  expect((await read('sums', { since: '2024-01-02T01:00:00+01:00' })).records).toMatchObject([{ code: '6' }]);
  await expect(read('sums', { least: 'many' })).rejects.toMatchObject({ reason: 'INVALID_QUERY' });
});

test('values that no index could hold are groups, and sums are exact beyond what a double holds', async () => {
  await app.createCollection('docs');
  const long = 'y'.repeat(1_000_000);
  const deep = `${'{"o":'.repeat(60)}1.50${'}'.repeat(60)}`;
  await app.store('docs', [`{"id":"1","g":"${long}","n":1e308}`]);
  await app.store('docs', [`{"id":"2","g":"${long}","n":9e307}`, `{"id":"3","g":${deep},"n":1e-300}`]);
  await create(
    'groups',
    ['docs'],
    { group_by: 'g', aggregate: { sum: { $sum: 'n' }, n: { $count: '*' } } },
    { g: 'g' },
  );
  const { json } = await fixture.methods.readView({
    appId: app.appId,
    name: 'groups',
    parameters: [],
    mayReadPrivate: false,
  });
  const text = json.toString();
  expect(text).toContain(`{"g":"${long}","sum":19${'0'.repeat(307)},"n":2}`);
  expect(text).toContain(`{"g":${deep.replace('1.50', '1.5')},"sum":0.${'0'.repeat(299)}1,"n":1}`);
  expect((await read('groups', { g: long })).records).toMatchObject([{ n: 2 }]);
  await app.store('docs', [
    '{"id":"4","g":"e","n":1e308}',
    '{"id":"5","g":"e","n":1e308}',
    '{"id":"6","g":"e","n":1e-308}',
  ]);
  await app.completed(await refresh('groups'));
  expect((await read('groups', { g: 'e' })).records).toMatchObject([{ n: 3 }]);
  expect((await read('groups', { sort: '-sum', limit: '1' })).records).toMatchObject([{ g: 'e' }]);
});

test('the same values in other spellings give the same text', async () => {
  const texts = ['{"g":1,"n":0.30,"m":[1.0,1e70]}', '{"g":1.0,"n":1e2,"m":[1,10e69]}'];
  const query = {
    group_by: ['g', 'm'],
    aggregate: { sum: { $sum: 'n' }, min: { $min: 'n' }, max: { $max: 'n' }, last: { $last: 'n' } },
  };
  for (const [at, documents] of [texts, [...texts].reverse()].entries()) {
    await app.createCollection(`docs${at}`);
    await app.store(`docs${at}`, documents);
    await create(`spelled${at}`, [`docs${at}`], query);
    const request = { appId: app.appId, name: `spelled${at}`, parameters: [], mayReadPrivate: false };
    const text = (await fixture.methods.readView(request)).json.toString();
    expect(text).toContain(
      `{"g":1,"m":[1,1${'0'.repeat(70)}],"sum":100.3,"min":0.3,"max":100,"last":${at === 0 ? '1e2' : '0.30'}}`,
    );
  }
});
