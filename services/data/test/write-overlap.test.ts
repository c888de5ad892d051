import { Client } from 'pg';
import type { Pool } from '@granary/shared/postgres/pool';
import { startPostgresProxy } from '@granary/testing/postgres-proxy';
import { eventually } from '@granary/testing/eventually';
import { checkChain } from './support/check-chain';
import { newApp, storeRequest, type App, type DataService } from './support/data-service';
import { holdDocument } from './support/hold-document';
import { startHoldingProxy } from './support/holding-proxy';
import { collectionNumber, fields, sessionWhere, startCopy, startTwoCopies } from './support/write-fixture';

/** So many documents of this size are a bulk. */
const bulkCount = 150;
const padding = 'x'.repeat(1_000);

const bulk = (name: string, more: (n: number) => object = () => ({})) =>
  Array.from({ length: bulkCount }, (_, n) => ({ id: `${name}-${n}`, n, padding, ...more(n) }));

/** As large, but few. */
const large = Array.from({ length: 3 }, (_, n) => ({ id: `large-${n}`, padding: padding.repeat(100) }));

interface Stored {
  results: Array<{ celestia_height: number }>;
}

describe('writes of one app that overlap', () => {
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
    for (const name of ['films', 'other']) await makeCollection(name, {});
    // From here on both collections and the head are cached.
    await store('films', [{ id: 'first' }]);
    await store('other', [{ id: 'first' }]);
  });
  afterEach(() => checkChain(pool, app));

  const makeCollection = (name: string, rules: object) =>
    one.methods.createCollection({ appId: app.appId, name, schemaJson: fields(rules), readAccess: 'public' });
  /** The height of what was stored. */
  const store = async (collection: string, data: object[], copy = one) => {
    const { resultsJson } = await copy.methods.store(storeRequest(app, collection, data));
    const { results } = JSON.parse(`{"results":${resultsJson.toString()}}`) as Stored;
    return results[0]!.celestia_height;
  };
  const numberOf = (name: string, of = app) => collectionNumber(pool, of, name);
  /** How many documents of that name there are, and how many versions before the last ones. */
  const countOf = async (collection: string, name: string) => {
    const number = await numberOf(collection);
    const { rows } = await pool.query<{ documents: number; versions: number }>(
      `select (select count(*)::int from a_${app.number}.c_${number} where id like $1) as documents,
              (select count(*)::int from a_${app.number}.h_${number} where id like $1) as versions`,
      [`${name}-%`],
    );
    return rows[0]!;
  };
  const whole = { documents: bulkCount, versions: 0 };

  /** Keeps what writes to a collection waiting, after its documents are written. */
  async function holdCounters(collection: string, of = app): Promise<{ release: () => Promise<void> }> {
    const client = new Client({ connectionString: url });
    await client.connect();
    await client.query('begin');
    await client.query('select from collection where number = $1 for update', [await numberOf(collection, of)]);
    return {
      release: async () => {
        await client.query('commit');
        await client.end();
      },
    };
  }

  const findSession = (where: string) => sessionWhere(pool, where);
  const session = (where: string) => eventually(() => findSession(where));
  const waiting = `wait_event_type = 'Lock' and query like 'update collection%'`;
  /** The transaction that waits for the counters of its collection. */
  const waitsForCounters = () => session(waiting);
  /** A transaction that has copied its documents while the one before it waits for the counters. */
  const copied = `state = 'idle in transaction' and query like 'copy a_%'`;
  const hasPreloaded = () =>
    session(`${copied} and exists (select from pg_stat_activity where datname = current_database() and ${waiting})`);

  /**
   * A bulk that is held up under the lock of the head, and one behind it that has been copied already. Both are of one
   * collection: what is known of two may be of different age, and then the second could come first.
   */
  async function overlapping(copy = one): Promise<{
    release: () => Promise<void>;
    first: Promise<unknown>;
    second: Promise<unknown>;
  }> {
    const { release } = await holdCounters('films');
    const outcome = (stored: Promise<number>) => stored.catch((error: unknown) => error);
    const first = outcome(store('films', bulk('a'), copy));
    const second = outcome(store('films', bulk('b'), copy));
    await hasPreloaded();
    return { release, first, second };
  }

  test('a bulk is copied while the one before it is under way, and commits after it', async () => {
    const { release, first, second } = await overlapping();
    expect(await countOf('films', 'b')).toEqual({ documents: 0, versions: 0 });
    await release();
    expect([await first, await second]).toEqual([3, 4]);
    expect(await countOf('films', 'a')).toEqual(whole);
    expect(await countOf('films', 'b')).toEqual(whole);
  });

  test('preloaded bulks are written under the lock, in their order, when the first is abandoned', async () => {
    const { release, first, second } = await overlapping();
    await pool.query('select pg_cancel_backend($1)', [await waitsForCounters()]);
    // The second is rolled back, and the first is written again.
    await eventually(async () => (await findSession(copied)) === undefined && findSession(waiting));
    await release();
    expect([await first, await second]).toEqual([3, 4]);
    expect(await countOf('films', 'a')).toEqual(whole);
    expect(await countOf('films', 'b')).toEqual(whole);
  });

  test('small writes commit while a bulk is being copied, and one with an id of it waits for it', async () => {
    const release = await holdDocument(pool, app, await numberOf('films'), 'a-100');
    const large = store('films', bulk('a'));
    await session(`query like 'copy a_${app.number}.%'`);
    const before = [await store('other', [{ id: 'x' }]), await store('other', [{ id: 'a-7' }])];
    const after = store('films', [{ id: 'a-7', by: 'a small one' }]);
    await release();
    expect([...before, await large, await after]).toEqual([3, 4, 5, 6]);
    expect(await countOf('films', 'a')).toEqual({ documents: bulkCount, versions: 1 });
  });

  test('a preloaded bulk follows one whose COMMIT got no answer, once that is found or written', async () => {
    const { release, first, second } = await overlapping();
    await pool.query('select pg_terminate_backend($1)', [await waitsForCounters()]);
    await waitsForCounters();
    await release();
    expect([await first, await second]).toEqual([3, 4]);
    expect(await countOf('films', 'a')).toEqual(whole);
    expect(await countOf('films', 'b')).toEqual(whole);
  });

  test('a bulk whose preload is lost with its connection is written once', async () => {
    const { release, first, second } = await overlapping();
    await pool.query('select pg_terminate_backend($1)', [await hasPreloaded()]);
    await release();
    expect([await first, await second]).toEqual([3, 4]);
    expect(await countOf('films', 'b')).toEqual(whole);
  });

  test.each([
    ['there are only two', 4, 0, bulk('behind')],
    ['the one behind it cannot be preloaded', 6, 1, large],
  ])('a bulk that is held up leaves other apps their slots, where %s', async (_, poolSize, othersHeldUp, behind) => {
    const copy = await startCopy(url, poolSize);
    const storeIn = (of: App, data: object[]) => copy.methods.store(storeRequest(of, 'films', data));
    const others = await Promise.all(Array.from({ length: othersHeldUp + 1 }, () => newApp(copy)));
    for (const each of [app, ...others]) await storeIn(each, [{ id: 'known' }]);
    const held = [app, ...others.slice(1)];
    const locks = await Promise.all(held.map((each) => holdCounters('films', each)));
    const writes = [
      storeIn(app, bulk('held')),
      storeIn(app, behind),
      ...others.slice(1).map((each) => storeIn(each, [{}])),
    ];
    const heldUp = async () => {
      const { rows } = await pool.query<{ since: string }>(
        `select pid || ' ' || query_start as since from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock' order by pid`,
      );
      return rows.map(({ since }) => since);
    };
    const before = await eventually(async () => {
      const found = await heldUp();
      return found.length === held.length && found;
    });
    await storeIn(others[0]!, [{ id: 'passes' }]);
    // Not after one of them had given up.
    expect(await heldUp()).toEqual(before);
    for (const { release } of locks) await release();
    await Promise.all(writes);
    expect(await countOf('films', 'held')).toEqual(whole);
    await copy.stop();
  });

  test('a write of another replica comes between two bulks of which the second was preloaded', async () => {
    const { release, first, second } = await overlapping();
    const between = store('films', [{ id: 'b-7', by: 'two' }], two);
    await session(`wait_event_type = 'Lock' and query like '%head%'`);
    await release();
    const heights = [await first, await between, await second];
    expect(heights[0]).toBe(3);
    expect(new Set(heights)).toEqual(new Set([3, 4, 5]));
    expect(await countOf('films', 'b')).toEqual({ documents: bulkCount, versions: 1 });
  });

  test('a change of the catalog comes between two bulks, and the second has the keys of the new index', async () => {
    const { release, first, second } = await overlapping();
    const changed = one.methods.createIndex({
      appId: app.appId,
      appNumber: app.number.toString(),
      name: 'n',
      collection: 'films',
      fieldName: 'n',
      fields: [],
      indexType: 'number',
      unique: false,
      ticketId: '',
    });
    await session(`wait_event_type = 'Lock' and query like '%head%'`);
    await release();
    await Promise.all([first, second, changed]);
    const { rows } = await pool.query<{ number: bigint }>('select number from indexed_field where app_number = $1', [
      app.number,
    ]);
    const wrong = await pool.query(
      `select id from a_${app.number}.c_${await numberOf('films')}
       where f_${rows[0]!.number} <> sort_key(body::jsonb -> 'n')`,
    );
    expect(wrong.rows).toEqual([]);
    expect(await countOf('films', 'b')).toEqual(whole);
  });

  test('a preloaded bulk obeys a schema that has come between', async () => {
    const proxy = await startHoldingProxy(url);
    const copy = await startCopy(proxy.url);
    try {
      await store('films', [{ id: 'ready' }], copy);
      const { release, first, second } = await overlapping(copy);
      const committed = proxy.holdAnswerOfCommit();
      await release();
      await committed;
      const schemaJson = fields({ n: { type: 'string' } });
      await one.methods.updateCollection({ appId: app.appId, name: 'films', schemaJson, force: true });
      void proxy.release();
      expect(await first).toBe(4);
      expect(await second).toMatchObject({ reason: 'SCHEMA_VIOLATION' });
    } finally {
      await copy.stop();
      await proxy.stop();
    }
  });

  test('bulks in a row may hold the same ids, known ids, unique values and refused documents', async () => {
    await makeCollection('users', { email: { type: 'string', unique: true } });
    const email = (n: number) => ({ email: `e${n}` });
    await store('users', bulk('known', email));
    const outcomes = await Promise.all(
      [
        store('films', bulk('a')),
        store('films', bulk('a')),
        store('other', bulk('b')),
        // The values are taken by others, the ids are known, and one document does not fit the schema.
        store('users', bulk('new', email)),
        store('users', bulk('known', email)),
        store('users', [...bulk('odd'), { id: 'odd-last', email: 7 }]),
        store('films', [...bulk('a'), ...bulk('c')]),
        store('other', bulk('d')),
        store('films', [{ id: 'a-0' }]),
      ].map((stored) =>
        stored.then(
          () => 'stored',
          ({ reason }: { reason: string }) => reason,
        ),
      ),
    );
    const stored = 'stored';
    expect(outcomes).toEqual([
      stored,
      stored,
      stored,
      'UNIQUE_VIOLATION',
      stored,
      'SCHEMA_VIOLATION',
      stored,
      stored,
      stored,
    ]);
    expect(await countOf('films', 'a')).toEqual({ documents: bulkCount, versions: 2 * bulkCount + 1 });
    expect(await countOf('films', 'c')).toEqual(whole);
    expect(await countOf('other', 'b')).toEqual(whole);
    expect(await countOf('other', 'd')).toEqual(whole);
    expect(await countOf('users', 'known')).toEqual({ documents: bulkCount, versions: bulkCount });
    expect(await countOf('users', 'new')).toEqual({ documents: 0, versions: 0 });
  });

  test('two copies that load one app at once, small writes among the bulks, get along', async () => {
    await Promise.all(
      [one, two].map((copy, at) =>
        Promise.all(
          Array.from({ length: 4 }, async (_, writer) => {
            for (let n = 0; n < 6; n++) {
              await store('films', bulk(`${at}-${writer}-${n}`), copy);
              await store('films', [{ id: `small-${at}-${writer}-${n}` }], copy);
            }
          }),
        ),
      ),
    );
    for (const at of [0, 1]) expect((await countOf('films', `${at}`)).documents).toBe(24 * bulkCount);
    expect(await countOf('films', 'small')).toEqual({ documents: 48, versions: 0 });
    expect((await one.methods.getApplication({ appId: app.appId })).height).toBe('98');
  });

  test('bulks and small writes whose COMMIT is cut are stored once each', async () => {
    let armed = false;
    let seen = 0;
    const proxy = await startPostgresProxy(url, () => {
      const fates = ['pass', 'pass', 'cut after', 'pass', 'cut before'] as const;
      return armed ? fates[seen++ % fates.length]! : 'pass';
    });
    const copy = await startCopy(proxy.url);
    try {
      await store('films', [{ id: 'ready' }], copy);
      armed = true;
      await Promise.all(
        Array.from({ length: 6 }, async (_, writer) => {
          for (let n = 0; n < 5; n++) {
            const request = storeRequest(app, 'films', writer === 0 ? [{ id: `s-${n}` }] : bulk(`${writer}-${n}`));
            await eventually(() =>
              copy.methods.store(request).then(
                () => true,
                ({ code }: { code: string }) => {
                  expect(code).toBe('UNAVAILABLE');
                  return false;
                },
              ),
            );
          }
        }),
      );
      armed = false;
      expect(seen).toBeGreaterThan(20);
      for (const writer of [1, 2, 3, 4, 5]) {
        expect(await countOf('films', `${writer}`)).toEqual({ documents: 5 * bulkCount, versions: 0 });
      }
      expect(await countOf('films', 's')).toEqual({ documents: 5, versions: 0 });
      expect((await one.methods.getApplication({ appId: app.appId })).height).toBe('33');
    } finally {
      armed = false;
      await copy.stop();
      await proxy.stop();
    }
  });
});
