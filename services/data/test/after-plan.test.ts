import { newTicket } from '@granary/shared/ids';
import { textArray } from '@granary/shared/postgres/wire/binary';
import { execute, rows } from '@granary/shared/postgres/pool';
import { empty, named, sql } from '@granary/shared/postgres/sql';
import { CatalogCache } from '../src/catalog/cache';
import type { CollectionRef } from '../src/catalog/collection';
import { AfterPlan, type DerivedRows } from '../src/commit/after-plan';
import { BulkThrottle } from '../src/commit/bulk-throttle';
import type { DocumentRow } from '../src/commit/plan';
import { Committer } from '../src/commit/committer';
import { storeDocuments } from '../src/writes/store';
import { log, newApp, storeRequest, type App } from './support/data-service';
import { fields, startTwoCopies, type TwoCopies } from './support/write-fixture';

let copies: TwoCopies;
let app: App;
let committer: Committer;
beforeAll(async () => {
  copies = await startTwoCopies();
});
afterAll(() => copies.stop());

/** A table with the versions before and after each change of a document, instead of a view. */
const derivedFrom = ({ appNumber }: CollectionRef): DerivedRows[] => {
  const table = named('a_', appNumber, '.derived');
  const afterCopy = (copied: readonly DocumentRow[]) => {
    const ids = textArray(copied.map(({ document }) => document.id));
    const bodies = textArray(copied.map(({ document: { text, start, end } }) => text.subarray(start, end)));
    return [
      sql`insert into ${table} (id, after) select id, body from unnest(${ids}::text[], ${bodies}::text[]) c(id, body)`,
    ];
  };
  return [
    {
      upsertCte: sql`derived as (
        insert into ${table} (id, before, after) select id, old_body, body from written)`,
      removalCte: sql`derived as (insert into ${table} (id, before) select id, body from gone)`,
      afterCopy,
      besideCopy: () => Promise.resolve([]),
      beforeTurn: (_, copied) => Promise.resolve(afterCopy(copied)),
    },
  ];
};

beforeEach(async () => {
  const { pool, one } = copies;
  app = await newApp(one);
  await execute(
    pool,
    sql`create table ${named('a_', app.number, '.derived')} (at bigint generated always as identity, id text, before text, after text)`,
  );
  committer = new Committer({
    pool,
    log,
    now: () => new Date(),
    concurrency: 3,
    throttle: new BulkThrottle(1),
    collections: new CatalogCache(pool),
    afterPlan: new AfterPlan({
      rowsOf: (collection) => (collection.name === 'plain' ? [] : derivedFrom(collection)),
      abandon: () => Promise.resolve(),
    }),
    defaultRead: 'public',
    afterCommit: () => {},
  });
});
afterEach(() => committer.stop());

const store = (collection: string, data: object[], more: object = {}) =>
  storeDocuments({ committer, pool: copies.pool }, storeRequest(app, collection, data, more));

interface Change {
  id: string;
  before: string | null;
  after: string;
}

const changes = () =>
  rows<Change>(copies.pool, sql`select id, before, after from ${named('a_', app.number, '.derived')} order by at`);

const inserted = (document: { id: string }): Change => ({
  id: document.id,
  before: null,
  after: JSON.stringify(document),
});

/** So many documents of this size are a bulk. */
const bulk = (name: string) =>
  Array.from({ length: 150 }, (_, n) => ({ id: `${name}-${n}`, email: `${name}${n}`, padding: 'x'.repeat(1_000) }));

const idempotency = { caller: 'k', method: 'POST', path: '/store', key: 'once', contentHash: Buffer.alloc(32) };

test('derived rows change with the documents, from the versions before and after, in one round trip and in two', async () => {
  const [a, b] = [
    { id: 'a', n: 1 },
    { id: 'b', n: 1 },
  ];
  await store('films', [a]);
  await store('films', [b]);
  await store('films', [{ id: 'a', n: 2 }], { idempotency });
  await store('films', [
    { id: 'b', n: 2 },
    { id: 'b', n: 3 },
  ]);
  await store('plain', [a]);
  expect(await changes()).toEqual([
    inserted(a),
    inserted(b),
    { id: 'a', before: '{"id":"a","n":1}', after: '{"id":"a","n":2}' },
    { id: 'b', before: '{"id":"b","n":1}', after: '{"id":"b","n":3}' },
  ]);
});

test('derived rows change with bulks, preloaded or written under the lock, and with the known documents among them', async () => {
  await copies.one.methods.createCollection({
    appId: app.appId,
    name: 'users',
    schemaJson: fields({ email: { type: 'string', unique: true } }),
    readAccess: 'public',
  });
  await store('films', [{ id: 'first' }]);
  const known = { id: 'known', email: 'known' };
  await store('users', [known]);
  await Promise.all([store('films', bulk('f')), store('films', bulk('g'))]);
  await store('users', [...bulk('u'), { ...known, n: 2 }]);
  const expected = [
    inserted({ id: 'first' }),
    inserted(known),
    ...['f', 'g', 'u'].flatMap((name) => bulk(name).map(inserted)),
    { id: 'known', before: JSON.stringify(known), after: JSON.stringify({ ...known, n: 2 }) },
  ];
  const byId = (x: Change, y: Change) => (x.id + String(x.before) < y.id + String(y.before) ? -1 : 1);
  expect((await changes()).sort(byId)).toEqual(expected.sort(byId));
});

test('a refused write, and one that is repeated, leave no derived row', async () => {
  await store('films', [{ id: 'a' }]);
  const repeated = { ticketId: newTicket('c', app.number), idempotency };
  await store('films', [{ id: 'b' }], repeated);
  await store('films', [{ id: 'b' }], repeated);
  await expect(
    store('films', [{ id: 'c' }], { idempotency: { ...idempotency, contentHash: Buffer.alloc(32, 1) } }),
  ).rejects.toThrow('used for another request');
  expect(await changes()).toEqual([inserted({ id: 'a' }), inserted({ id: 'b' })]);
});

test('a collection without derived rows is compiled once, and its statements are as they would be without the hook', () => {
  let calls = 0;
  const afterPlan = new AfterPlan({
    rowsOf: () => {
      calls += 1;
      return [];
    },
    abandon: () => Promise.resolve(),
  });
  const collection = {} as CollectionRef;
  const statements = afterPlan.statementsFor(collection);
  expect(afterPlan.statementsFor(collection)).toBe(statements);
  expect([calls, statements.ctes, statements.returning, statements.afterCopy([])]).toEqual([1, empty, empty, []]);
});
