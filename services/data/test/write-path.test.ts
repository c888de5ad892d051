import { randomUUID } from 'node:crypto';
import { Client } from 'pg';
import { newTicket } from '@granary/shared/ids';
import type { Pool } from '@granary/shared/postgres/pool';
import { eventually } from '@granary/testing/eventually';
import { AfterPlan } from '../src/commit/after-plan';
import { liveViewRows } from '../src/views/live/live-rows';
import { purgeExpired } from '../src/usage/retention-purge';
import { log, newApp, storeRequest, type App, type DataService } from './support/data-service';
import { collectionNumber, fields, startCopy, startTwoCopies } from './support/write-fixture';

describe('the write path of two copies on one database', () => {
  let url: string;
  let one: DataService;
  let two: DataService;
  let pool: Pool;
  let app: App;
  let stop: () => Promise<void>;
  beforeAll(async () => {
    ({ url, pool, one, two, stop } = await startTwoCopies());
  });
  afterAll(() => stop());
  beforeEach(async () => {
    app = await newApp(one);
  });

  const createCollection = (name: string, rules: object) =>
    one.methods.createCollection({ appId: app.appId, name, schemaJson: fields(rules), readAccess: 'public' });
  const updateSchema = (name: string, rules: object) =>
    one.methods.updateCollection({ appId: app.appId, name, schemaJson: fields(rules), force: true });
  const store = (collection: string, data: string | object[], copy = one) =>
    copy.methods.store(storeRequest(app, collection, data));
  const createIndex = (collection: string, fieldName: string, more: object = {}) =>
    one.methods.createIndex({
      appId: app.appId,
      appNumber: app.number.toString(),
      name: `${collection}_${fieldName}`,
      collection,
      fieldName,
      fields: [],
      indexType: 'btree',
      unique: false,
      ticketId: newTicket('j', app.number),
      ...more,
    });
  const numberOf = (name: string) => collectionNumber(pool, app, name);
  test('a schema that was relaxed holds for the next write of every copy', async () => {
    await createCollection('people', { name: { type: 'string', required: true } });
    for (const copy of [one, two]) {
      await expect(store('people', [{ id: 'a' }], copy)).rejects.toMatchObject({ reason: 'SCHEMA_VIOLATION' });
    }
    await updateSchema('people', { name: { type: 'string' } });
    await store('people', [{ id: 'a' }], one);
    await store('people', [{ id: 'b' }], two);
  });

  test('a write that is repeated with its ticket has its first answer, though it collides with itself by now', async () => {
    await createCollection('users', { email: { type: 'string', unique: true } });
    const request = storeRequest(app, 'users', [{ email: 'a@x' }]);
    const first = await one.methods.store(request);
    expect(await two.methods.store(request)).toEqual(first);
    await updateSchema('users', { email: { type: 'string', unique: true }, name: { type: 'string', required: true } });
    expect(await two.methods.store(request)).toEqual(first);
    expect((await one.methods.getCollection({ appId: app.appId, collection: 'users' })).documentCount).toBe('1');
  });

  test('an idempotency key has its answer, though the schema has become stricter since', async () => {
    const idempotency = {
      caller: 'k',
      method: 'POST',
      path: '/store',
      key: randomUUID(),
      contentHash: Buffer.from('h'),
    };
    const request = storeRequest(app, 'users', [{ email: 'a@x' }], { idempotency });
    const first = await one.methods.store(request);
    await updateSchema('users', { name: { type: 'string', required: true } });
    expect(await two.methods.store({ ...request, ticketId: newTicket('c', app.number) })).toEqual(first);
  });

  test('a deeply nested value of a unique field or an enum is compared as it is', async () => {
    const nested = (core: string) => '['.repeat(60) + core + ']'.repeat(60);
    await createCollection('trees', { tree: { type: 'array', unique: true } });
    await store('trees', `[{"tree":${nested('1')}},{"tree":${nested('"1"')}}]`);
    await expect(store('trees', `[{"tree":${nested('1.0')}}]`)).rejects.toMatchObject({ reason: 'UNIQUE_VIOLATION' });
    await store('trees', '[{"tree":[{"a":1,"b":["x"]}]}]');
    await expect(store('trees', '[{"tree":[{"b":["x"],"a":1}]}]')).rejects.toMatchObject({
      reason: 'UNIQUE_VIOLATION',
    });
  });

  test('a unique value that a document of the same call gives up is free for a later one', async () => {
    await createCollection('users', { email: { type: 'string', unique: true } });
    await store('users', [{ id: 'a', email: 'x' }]);
    await store('users', [
      { id: 'b', email: 'z' },
      { id: 'a', deleted: true },
      { id: 'b', email: 'x' },
    ]);
  });

  test('a large call stores what the same documents in small calls do', async () => {
    const rules = { n: { type: 'number', index: true }, email: { type: 'string', unique: true } };
    const odd = ['\\t', '\\n\\\\.\\n', '\\\\N', '\\"', 'é😀', '\\u00e9\\ud83d\\ude00', '', 'x'.repeat(400)];
    const texts: string[] = [];
    const ids = new Set<string>();
    const add = (id: string, n: number, deleted = false) => {
      ids.add(id);
      texts.push(
        `{"id":${/^\d+$/.test(id) ? id : JSON.stringify(id)}, "n": ${n}.10,"email":"${odd[n % odd.length]}-${JSON.stringify(id).slice(1, -1)}","deleted":${deleted}}`,
      );
    };
    for (let n = 0; n < 60; n++) add(`known-${n}`, n);
    const seeded = texts.length;
    for (let n = 0; n < 300; n++) {
      add(n % 3 === 0 ? `${n}` : `new "\\ ${n}`, n, n % 17 === 0);
      if (n % 10 === 0) add(`known-${n / 10}`, 1_000 + n, n % 20 === 0);
      if (n % 25 === 0) add(`new "\\ ${n + 1}`, 2_000 + n);
      if (n % 50 === 0) add(`known-${n / 10}`, 3_000 + n);
    }
    const call = (collection: string, part: string[]) => store(collection, `[${part.join()}]`);
    const stored = async (collection: string) => {
      const number = await numberOf(collection);
      const values = async (table: string, order: string) =>
        (
          await pool.query<Record<string, unknown>>(
            `select * from a_${app.number}.${table}_${number} order by ${order}`,
          )
        ).rows.map(
          // The columns of keys have other numbers in another collection.
          ({ created_at: _created, updated_at: _updated, ordinal: _ordinal, place: _place, ...rest }) =>
            Object.values(rest),
        );
      const counters = await pool.query(
        'select row_count, deleted_count, version_count, size_bytes from collection where number = $1',
        [number],
      );
      return { latest: await values('c', 'id'), history: await values('h', 'id, version'), counters: counters.rows };
    };
    for (const collection of ['small', 'large']) {
      await createCollection(collection, rules);
      await call(collection, texts.slice(0, seeded));
    }
    for (let at = seeded; at < texts.length; at += 20) await call('small', texts.slice(at, at + 20));
    await call('large', texts.slice(seeded));
    const small = await stored('small');
    expect(small.latest).toHaveLength(ids.size);
    expect(small.history.length).toBeGreaterThan(40);
    expect(await stored('large')).toEqual(small);
  });

  test('a large call is refused as a small one is where values must be unique, and may take what it gives up', async () => {
    await createCollection('users', { email: { type: 'string', unique: true } });
    await store('users', [{ id: 'a', email: 'taken' }]);
    const users = (email: (n: number) => string) =>
      Array.from({ length: 150 }, (_, n) => ({ id: `u${n}`, email: email(n) }));
    const refused = (place: number) => ({
      reason: 'UNIQUE_VIOLATION',
      details: { [`data[${place}].email`]: ['must be unique, and another document has the same value'] },
    });
    await expect(
      store(
        'users',
        users((n) => (n === 120 ? 'taken' : `e${n}`)),
      ),
    ).rejects.toMatchObject(refused(120));
    await expect(
      store(
        'users',
        users((n) => `e${n === 140 ? 130 : n}`),
      ),
    ).rejects.toMatchObject(refused(140));
    expect((await one.methods.getCollection({ appId: app.appId, collection: 'users' })).documentCount).toBe('1');
    await store('users', [...users((n) => (n === 0 ? 'taken' : `e${n}`)), { id: 'a', email: 'given up' }]);
    expect((await one.methods.getCollection({ appId: app.appId, collection: 'users' })).documentCount).toBe('151');
  });

  test('writes and changes of the catalog of one app get along with two connections', async () => {
    const small = await startCopy(url, 2);
    try {
      await Promise.all(
        Array.from({ length: 30 }, async (_, n) => {
          await small.methods.store(storeRequest(app, `films${n % 3}`, [{ n }]));
          const schemaJson = fields({ n: { type: 'number', index: true } });
          await small.methods.createCollection({ appId: app.appId, name: `c${n}`, schemaJson, readAccess: 'public' });
          await small.methods.store(storeRequest(app, `c${n}`, [{ n }]));
        }),
      );
    } finally {
      await small.stop();
    }
    expect((await one.methods.getApplication({ appId: app.appId })).height).toBe('60');
  });

  test('writes that lose to another transaction are done again together, and each once', async () => {
    await createCollection('films', {});
    // A rollback does not set a sequence back.
    await pool.query(`
      create sequence a_${app.number}.attempts;
      create function a_${app.number}.lose() returns trigger language plpgsql as $$
        begin
          if nextval('a_${app.number}.attempts') < 3 then raise 'lost' using errcode = '40P01'; end if;
          return new;
        end $$;
      create trigger lose before insert on a_${app.number}.c_${await numberOf('films')}
        for each statement execute function a_${app.number}.lose()`);
    const heights = await Promise.all(
      Array.from({ length: 20 }, async (_, n) => {
        const { resultsJson } = await store('films', [{ id: `f${n}`, n }]);
        return (JSON.parse(resultsJson.toString()) as Array<{ celestia_height: number }>)[0]!.celestia_height;
      }),
    );
    expect(heights.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, n) => n + 1));
    expect((await one.methods.getCollection({ appId: app.appId, collection: 'films' })).documentCount).toBe('20');
    const { rows: attempts } = await pool.query(`select last_value >= 3 as "areMore" from a_${app.number}.attempts`);
    expect(attempts).toEqual([{ areMore: true }]);
  });

  test('a document of just 1 MiB can be indexed, although it has been given an id', async () => {
    const body = JSON.stringify({ n: 1, text: '' });
    const text = 'x'.repeat(1024 * 1024 - body.length);
    await store('films', [{ n: 1, text }]);
    expect((await createIndex('films', 'n')).index?.status).toBe('ready');
  });

  test('an index reaches into the default of a field', async () => {
    await createCollection('people', { address: { type: 'object', default: { city: 'Ulm' } } });
    await createIndex('people', 'address.city', { unique: true });
    await store('people', [{ id: 'a' }]);
    await expect(store('people', [{ id: 'b' }])).rejects.toMatchObject({ reason: 'UNIQUE_VIOLATION' });
  });

  test('a schema beyond the limits of its indexes and paths is refused', async () => {
    const many = Object.fromEntries(Array.from({ length: 65 }, (_, n) => [`f${n}`, { type: 'number', index: true }]));
    await expect(createCollection('a', many)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
    await createCollection('a', {});
    await expect(updateSchema('a', many)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
    const deep = { [Array.from({ length: 20_000 }, () => 'x').join('.')]: { type: 'number' } };
    await expect(createCollection('b', deep)).rejects.toMatchObject({ reason: 'VALIDATION_FAILED' });
    await expect(createCollection('b', { 'a\nb': { type: 'number', index: true } })).rejects.toMatchObject({
      reason: 'VALIDATION_FAILED',
    });
    const large = { text: { type: 'string', default: 'x'.repeat(100_000) } };
    await expect(createCollection('b', large)).rejects.toMatchObject({ reason: 'VALIDATION_FAILED' });
  });

  test('a schema does not claim uniqueness that the index it finds does not have', async () => {
    await createCollection('users', { email: { type: 'string', index: true } });
    await expect(updateSchema('users', { email: { type: 'string', unique: true } })).rejects.toMatchObject({
      reason: 'ALREADY_EXISTS',
    });
  });

  test('documents with the longest ids are purged', async () => {
    const long = '\u{1f33e}'.repeat(253);
    await store(
      'logs',
      Array.from({ length: 150 }, (_, n) => ({ id: `${long}${n}` })),
    );
    await one.methods.setRetention({ appId: app.appId, collection: 'logs', retentionDays: 1 });
    await pool.query(`update a_${app.number}.c_${await numberOf('logs')} set updated_at = now() - interval '2 days'`);
    await purgeExpired({ pool, log, derived: new AfterPlan(liveViewRows).removals });
    expect((await one.methods.getCollection({ appId: app.appId, collection: 'logs' })).documentCount).toBe('0');
  });

  test('a collection that is deleted under writers springs into existence again, an app does not', async () => {
    let deleting = true;
    const writers = [one, two, one, two].map(async (copy, writer) => {
      for (let n = 0; deleting; n++) await store('films', [{ id: `${writer}-${n}`, n }], copy);
    });
    const deletions = (async () => {
      for (let n = 0; n < 10; n++) {
        await eventually(
          async () => (await one.methods.listCollections({ appId: app.appId })).collections.length === 1,
        );
        await createIndex('films', 'n');
        await one.methods.deleteCollection({ appId: app.appId, name: 'films', force: true, cascade: false });
      }
    })().finally(() => {
      deleting = false;
    });
    await Promise.all([...writers, deletions]);

    const refused = [one, two].map(async (copy) => {
      for (;;) {
        try {
          await store('films', [{ n: 1 }, { n: 2 }], copy);
        } catch (error) {
          return error;
        }
      }
    });
    await one.methods.deleteApplication({ appId: app.appId });
    for (const error of await Promise.all(refused)) expect(error).toMatchObject({ reason: 'APP_NOT_FOUND' });
    await eventually(
      async () =>
        (await pool.query('select from application where number = $1 and dropped_at is not null', [app.number]))
          .rowCount === 1,
    );
  });

  test('a write that waited while its app was deleted is refused', async () => {
    await store('films', [{ n: 1 }]);
    const holder = new Client({ connectionString: url });
    await holder.connect();
    await holder.query('begin');
    await holder.query('select from head where app_number = $1 for update', [app.number]);
    const waiting = (count: number) =>
      eventually(async () => {
        const { rowCount } = await pool.query(
          `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%for update%'`,
        );
        return rowCount === count;
      });
    const deleted = one.methods.deleteApplication({ appId: app.appId });
    await waiting(1);
    const stored = store('films', [{ n: 2 }], two).then(
      () => 'stored',
      (error: { reason: string }) => error.reason,
    );
    await waiting(2);
    await holder.query('commit');
    await holder.end();
    await deleted;
    expect(await stored).toBe('APP_NOT_FOUND');
  });

  test('an application that was made with an idempotency key is answered again after its key was revoked', async () => {
    const idempotency = {
      caller: 'operator',
      method: 'POST',
      path: '/applications',
      key: randomUUID(),
      contentHash: Buffer.from('h'),
    };
    const request = { name: 'Test', description: '', idempotency };
    const first = await one.methods.createApplication(request);
    await one.methods.revokeKey({ appId: first.application!.appId, keyId: first.key!.key!.keyId });
    const again = await two.methods.createApplication(request);
    expect(again).toMatchObject({ application: { appId: first.application!.appId }, key: { secret: '' } });
    expect(again.key!.key!.keyId).toBe(first.key!.key!.keyId);
  });
});
