import { createLogger } from '@granary/shared/logger';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

interface Made {
  ticket_id?: string;
  status?: string;
  code?: string;
  name?: string;
  details?: Record<string, string[]>;
}

describe.each(transports)('types and prices of indexes, and relations (%s)', (transport) => {
  let granary: Granary;
  let pool: Pool;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    pool = createPool({
      url: granary.databaseUrls.data,
      size: 1,
      applicationName: 'test',
      log: createLogger('test', 'silent'),
    });
  });
  afterAll(async () => {
    await pool.end();
    await granary.stop();
  });
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
  });

  const create = (definition: object, of: Pick<TestApp, 'call'> = app) =>
    of.call<Made>('POST', `${path}/indexes`, { name: 'one', collection: 'items', field_name: 'f', ...definition });
  const index = async (name = 'one', collection = 'items') =>
    (await app.call(`GET`, `${path}/collections/${collection}/indexes/${name}`)).body;
  const filtered = async (query: string) =>
    (
      await send<{ records: Array<{ id: string }> }>(granary.url, 'GET', `${path}/collections/items/data?${query}`)
    ).body.records.map(({ id }) => id);
  /** Columns that the tables of the app have for indexes. */
  const columns = async () => {
    const { rows } = await pool.query<{ attname: string }>(
      `select attname from pg_attribute a join pg_class t on t.oid = a.attrelid join pg_namespace n on n.oid = t.relnamespace
       join application p on n.nspname = 'a_' || p.number
       where p.app_id = $1 and t.relname ~ '^c_' and attname ~ '^[ftu]_' and not attisdropped`,
      [app.appId],
    );
    return rows.length;
  };

  test.each(['hash', 'Hash', 'price'])('%s serves equality, ranges and orders', async (index_type) => {
    const made = await create({ index_type });
    expect(made).toMatchObject({ status: 201, body: { index_type: index_type.toLowerCase(), status: 'ready' } });
    await app.store('items', [
      { id: 'a', f: 7 },
      { id: 'b', f: 7.5 },
      { id: 'c', f: '7' },
      { id: 'd', f: 6 },
    ]);
    expect(await filtered('f=7&sort=f')).toEqual(index_type === 'price' ? ['a'] : ['c', 'a']);
    expect(await filtered('f.$lt=7.5&sort=-f')).toEqual(index_type === 'price' ? ['a', 'd'] : expect.any(Array));
    expect(await create({ index_type })).toMatchObject({ status: 200, body: { updated: true } });
    for (const other of [{ index_type: 'btree' }, { index_type, options: { unique: true } }]) {
      expect(await create(other)).toMatchObject({ status: 409, body: { code: 'ALREADY_EXISTS' } });
    }
  });

  test('a hash of long values may be unique', async () => {
    await create({ index_type: 'hash', unique_constraint: true });
    const long = 'x'.repeat(5_000);
    await app.store('items', [{ id: 'a', f: `${long}1` }]);
    const refused = await app.call('POST', '/store', { root: `${app.appId}::items`, data: [{ f: `${long}1` }] });
    expect(refused).toMatchObject({ status: 409, body: { code: 'UNIQUE_VIOLATION' } });
    await app.store('items', [{ id: 'b', f: `${long}2` }]);
    expect(await filtered(`f=${long}2`)).toEqual(['b']);
  });

  test('prices are kept exactly, shown, changed by the same definition, and removed', async () => {
    const read = { pricing_model: 'per_access', price_per_access_tia: 0.000001 };
    const split = { app_owner_percentage: 0.8, platform_percentage: 0.2, app_owner_address: '' };
    await create({ index_type: 'string', read_price_config: read });
    expect(await index()).toMatchObject({ read_price_config: { ...read, price_per_access_utia: 1 } });
    const again = await create({ index_type: 'string', price_config: split });
    expect(again).toMatchObject({ status: 200, body: { updated: true, price_config: split } });
    const largest = { pricing_model: 'per_kb', price_per_kb_tia: 999_999_999.999999 };
    await create({ index_type: 'string', read_price_config: largest });
    expect(await index()).toMatchObject({
      price_config: split,
      read_price_config: { ...largest, price_per_kb_utia: 999_999_999_999_999 },
    });
    await create({ index_type: 'string', read_price_config: { pricing_model: 'per_kb', price_per_kb_utia: 3 } });
    expect(await index()).toMatchObject({ read_price_config: { price_per_kb_tia: 0.000003, price_per_kb_utia: 3 } });
    expect(await create({ index_type: 'string', price_config: null })).toMatchObject({ status: 400 });
    await create({ index_type: 'string', read_price_config: {} });
    expect(await index()).toMatchObject({ price_config: split });
    expect(await index()).not.toHaveProperty('read_price_config');
    for (const wrong of [
      { pricing_model: 'per_access' },
      { pricing_model: 'per_kb', price_per_access_tia: 1 },
      { price_per_access_tia: 1 },
      { pricing_model: 'monthly', price_per_kb_tia: 1 },
      { pricing_model: 'per_kb', price_per_kb_tia: 0.1234567 },
      { pricing_model: 'per_kb', price_per_kb_tia: -1 },
      { pricing_model: 'per_kb', price_per_kb_tia: '1' },
      { pricing_model: 'per_kb', price_per_kb_tia: 1e10 },
      { pricing_model: 'per_kb', price_per_kb_tia: 1, price_per_kb_utia: 1 },
      { pricing_model: 'per_kb', price_per_kb: 1 },
      { app_owner_percentage: 0.9, platform_percentage: 0.2 },
      7,
    ]) {
      const refused = await create({ name: 'wrong', index_type: 'price', price_config: wrong });
      expect([wrong, refused.status, refused.body.code]).toEqual([wrong, 400, 'VALIDATION_FAILED']);
    }
  });

  test('a unique index over few equal values is refused with the values and leaves nothing', async () => {
    await app.store('items', [
      { id: 'a', f: 'x' },
      { id: 'b', f: 'x' },
      { id: 'c', f: 1.5 },
      { id: 'd', f: 1.5 },
      { id: 'e', f: 2 },
    ]);
    const refused = await create({ index_type: 'btree', options: { unique: true } });
    expect(refused).toMatchObject({ status: 409, body: { code: 'UNIQUE_VIOLATION' } });
    expect(refused.body.details!['f']!.slice(1)).toEqual(['"x" in "a", "b"', '1.5 in "c", "d"']);
    expect([await columns(), await index()]).toMatchObject([0, { code: 'INDEX_NOT_FOUND' }]);
  });

  test('a unique index over many equal values fails with ten of them, leaves no columns, and can be made again', async () => {
    const many = Array.from({ length: 1_500 }, (_, n) => ({
      id: `i${String(n).padStart(4, '0')}`,
      f: n % 1_480,
      g: n,
    }));
    await app.store('items', many);
    const definition = { index_type: 'btree', options: { unique: true } };
    const made = await create(definition);
    const task = await app.ended(made.body.ticket_id!);
    const { Failed: failed } = task.status as { Failed: { error: string } };
    expect(failed.error).toContain('0 in "i0000", "i1480"; 1 in "i0001", "i1481"');
    expect(failed.error).toContain('9 in "i0009", "i1489"');
    expect(failed.error).not.toContain('i0010');
    expect(await index()).toMatchObject({ status: 'failed', error: failed.error });
    expect(await columns()).toBe(0);
    // Neither a write nor another index minds it.
    await app.store('items', [
      { id: 'i0000', f: 1 },
      { id: 'x', f: 1 },
    ]);
    expect(
      (await app.ended((await create({ name: 'two', field_name: 'g', index_type: 'number' })).body.ticket_id!)).status,
    ).toBe('Completed');
    for (let n = 0; n < 20; n++) await app.store('items', [{ id: `i${1_480 + n}`, f: 10_000 + n }]);
    await app.store('items', [
      { id: 'x', f: 'free' },
      { id: 'i0000', f: 'free too' },
    ]);
    const again = await create(definition);
    expect(again.status).toBe(202);
    expect((await app.ended(again.body.ticket_id!)).status).toBe('Completed');
    expect(await index()).toMatchObject({ status: 'ready', error: null });
    const refused = await app.call('POST', '/store', { root: `${app.appId}::items`, data: [{ f: 'free' }] });
    expect(refused).toMatchObject({ status: 409, body: { code: 'UNIQUE_VIOLATION' } });
    await app.call('DELETE', `${path}/collections/items/indexes/one`);
    await app.call('DELETE', `${path}/collections/items/indexes/two`);
    expect(await columns()).toBe(0);
  });

  test('a failed unique index can be deleted, and is built by a rebuild', async () => {
    await app.store(
      'items',
      Array.from({ length: 1_200 }, (_, n) => ({ id: `i${n}`, f: n % 1_199 })),
    );
    const definition = { index_type: 'number', options: { unique: true } };
    await app.ended((await create(definition)).body.ticket_id!);
    const rebuild = async () => {
      const { body } = await app.call<Made>('POST', `${path}/collections/items/indexes/one/rebuild`);
      return (await app.ended(body.ticket_id!)).status;
    };
    expect(await rebuild()).toEqual({ Failed: { error: expect.stringContaining('0 in "i0", "i1199"') as string } });
    await app.store('items', [{ id: 'i1199', f: -1 }]);
    expect(await rebuild()).toBe('Completed');
    await app.store('items', [{ id: 'i1199', f: -2 }]);
    expect(await filtered('f=-2')).toEqual(['i1199']);
    await app.call('DELETE', `${path}/collections/items/indexes/one`);
    await app.store('items', [{ id: 'i1199', f: 0 }]);
    await app.ended((await create(definition)).body.ticket_id!);
    expect((await app.call('DELETE', `${path}/collections/items/indexes/one`)).status).toBe(200);
    expect(await columns()).toBe(0);
    await app.store('items', [{ id: 'i1199', f: 0 }]);
  });

  test('a relation has both fields indexed, once', async () => {
    for (const name of ['people', 'notes']) await app.call('POST', `${path}/collections`, { name });
    const relate = (definition: object) =>
      app.call<{ indexes_created: object; ticket_ids: string[] }>('POST', `${path}/relations`, definition);
    const relation = {
      parent_collection: 'people',
      parent_field: 'address',
      child_collection: 'notes',
      child_field: 'author',
    };
    const made = await relate(relation);
    expect(made).toMatchObject({
      status: 201,
      body: {
        ...relation,
        created_at: expect.stringMatching(/^\d{4}-/) as string,
        indexes_created: { parent_index: true, child_index: true },
        ticket_ids: [],
      },
    });
    expect((await relate(relation)).body.indexes_created).toEqual({ parent_index: false, child_index: false });
    const itself = {
      parent_collection: 'notes',
      parent_field: 'id',
      child_collection: 'notes',
      child_field: 'reply_to',
    };
    expect((await relate(itself)).body.indexes_created).toEqual({ parent_index: false, child_index: true });
    const listed = await app.call<Array<{ name: string }>>('GET', `${path}/indexes`);
    expect(listed.body.map(({ name }) => name)).toEqual([
      'notes_author_idx',
      'notes_reply_to_idx',
      'people_address_idx',
    ]);
    expect(listed.body).toMatchObject([{ index_type: 'hash' }, { index_type: 'hash' }, { index_type: 'hash' }]);
    for (const wrong of [
      { parent_collection: '-' },
      { child_field: 'a..b' },
      { child_field: '' },
      { parent_field: undefined },
    ]) {
      expect(await relate({ ...relation, ...wrong })).toMatchObject({
        status: 400,
        body: { code: 'VALIDATION_FAILED' },
      });
    }
    await app.store(
      'items',
      Array.from({ length: 1_200 }, (_, n) => ({ id: `i${n}`, owner: n })),
    );
    const large = await relate({ ...relation, child_collection: 'items', child_field: 'owner' });
    expect(large.body.indexes_created).toEqual({ parent_index: false, child_index: true });
    for (const ticket of large.body.ticket_ids) expect((await app.ended(ticket)).status).toBe('Completed');
    expect(await filtered('owner=7')).toEqual(['i7']);
  });

  test('older clients make them before the collection exists, name them by nested fields, and name less', async () => {
    const ofClient = { collection: 'users', index_type: 'string', store_values: true };
    const nested = { ...ofClient, name: 'users_address.city_idx', field_name: 'address.city' };
    expect(await create(nested)).toMatchObject({ status: 201, body: { created_collection: { name: 'users' } } });
    expect(await index('users_address.city_idx', 'users')).toMatchObject({
      field_name: 'address.city',
      status: 'ready',
    });
    const short = await app.call<Made>('POST', `${path}/indexes`, {
      collection: 'users',
      field: 'age',
      type: 'number',
    });
    expect(short).toMatchObject({
      status: 201,
      body: { name: 'users_age_idx', field_name: 'age', index_type: 'number' },
    });
    const rebuilt = await app.call('POST', `${path}/collections/users/indexes/users_age_idx/rebuild`, {
      background: true,
    });
    expect(rebuilt.status).toBe(202);
    expect((await app.call('GET', `${path}/collections/users/indexes?include_stats=true`)).status).toBe(200);
    expect((await app.call('DELETE', `${path}/indexes/users_address.city_index`)).status).toBe(200);
    const missing = await app.call<Made>('POST', `${path}/indexes`, { collection: 'users', index_type: 'number' });
    expect(missing).toMatchObject({ status: 400, body: { details: { field_name: ['is required'] } } });
  });
});
