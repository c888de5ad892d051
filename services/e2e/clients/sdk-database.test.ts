import {
  OnChainDB,
  createHttpClient,
  type DatabaseManager,
  type Index,
  type SimpleCollectionSchema,
} from '@onchaindb/sdk';
import { films, startSdkFixture, type SdkFixture } from './sdk';

let fixture: SdkFixture;
let database: DatabaseManager;
beforeAll(async () => {
  fixture = await startSdkFixture();
  database = fixture.client.database(fixture.app.appId);
});
afterAll(() => fixture.stop());

type Named = Pick<Index, 'name'>;
const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/) as unknown;

const users: SimpleCollectionSchema = {
  name: 'users',
  fields: {
    email: { type: 'string', index: true, unique: true },
    age: { type: 'number', index: true },
    joined: { type: 'date', index: true },
    active: { type: 'boolean', index: true },
    bio: { type: 'string' },
    'address.city': { type: 'string', index: true },
  },
};
const base = ['createdAt', 'deletedAt', 'id', 'updatedAt'];
const indexed = ['active', 'address.city', 'age', ...base, 'email', 'joined'].sort();

test('createCollection indexes the fields of a collection that does not exist yet', async () => {
  const made = await fixture.client.createCollection(users);
  expect(made).toMatchObject({ collection: 'users', success: true, warnings: [] });
  expect(made.indexes.map(({ field }) => field).sort()).toEqual(indexed);
  expect(new Set(made.indexes.map(({ status }) => status))).toEqual(new Set(['created']));
  const again = await fixture.client.createCollection(users);
  expect(new Set(again.indexes.map(({ status }) => status))).toEqual(new Set(['updated']));
  const names = (await database.listIndexes('users')).map(({ name }) => name);
  expect(names).toContain('users_address.city_idx');
  await fixture.client.store({ collection: 'users', data: [{ id: 'u1', email: 'a@x', address: { city: 'Oslo' } }] });
  expect(await fixture.client.findMany('users', { 'address.city': 'Oslo' })).toHaveLength(1);
});

test('syncCollection creates what is missing and removes what is no longer wanted', async () => {
  const { age: _, ...kept } = users.fields;
  const changed = { ...users, fields: { ...kept, name: { type: 'string' as const, index: true } } };
  const synced = await fixture.client.syncCollection(changed);
  expect(synced).toMatchObject({
    success: true,
    errors: [],
    created: [{ field: 'name', type: 'string' }],
    removed: [{ field: 'age', type: 'number' }],
  });
  expect(synced.unchanged.map(({ field }) => field).sort()).toEqual(indexed.filter((field) => field !== 'age'));
  const fields = (await database.listIndexes('users')).map(({ field_name }) => field_name);
  expect(fields.sort()).toEqual(['name', ...indexed.filter((field) => field !== 'age')].sort());
  const fresh = await fixture.client.syncCollection({ ...users, name: 'people' });
  expect([fresh.success, fresh.created.length]).toEqual([true, indexed.length]);
  // Only the synchronised ones are unique: createCollection does not ask for it.
  await fixture.client.store({ collection: 'people', data: [{ email: 'a@x' }] });
  await expect(fixture.client.store({ collection: 'people', data: [{ email: 'a@x' }] })).rejects.toThrow(
    'Failed to store',
  );
});

test('collections are created, listed, read, changed and deleted', async () => {
  const config = { namespace: 'cinema', primary_column: 'id', sort_column: 'year' };
  const schema = { fields: { title: { type: 'string', required: true }, year: { type: 'number', index: true } } };
  const made = await database.createCollection('films', { ...config, schema_definition: schema });
  expect(made).toMatchObject({ name: 'films', namespace: 'cinema', schema_definition: schema });
  await fixture.client.store({ collection: 'films', data: films });
  expect((await database.listCollections()).map(({ name }) => name)).toEqual(['films', 'people', 'users']);
  const metadata = {
    document_count: 3,
    storage_size: expect.any(Number) as unknown,
    avg_document_size: expect.any(Number) as unknown,
    created_at: time,
    updated_at: time,
  };
  expect((await database.getCollection('films', true)).metadata).toEqual(metadata);
  expect((await database.listCollections(true))[0]).toMatchObject({ name: 'films', metadata });
  expect(await database.getCollection('films')).not.toHaveProperty('metadata');
  expect(await fixture.client.getCollectionInfo('films')).toMatchObject({ name: 'films', document_count: 3 });
  expect(await database.validateSchema('films', { title: 'Heat' })).toMatchObject({ valid: true });
  expect(await database.validateSchema('films', { year: 'late' })).toMatchObject({
    valid: false,
    errors: expect.arrayContaining([expect.stringMatching(/^data\.year must be /)]) as string[],
  });
  const secret = { access_policy: { read: 'private' } };
  expect(await database.updateCollection('films', secret as object)).toMatchObject(secret);
  await database.createCollection('gone', { namespace: 'n', primary_column: 'id' });
  expect(await database.deleteCollection('gone')).toMatchObject({ success: true });
  await expect(database.deleteCollection('films')).rejects.toMatchObject({ response: { status: 409 } });
});

test('indexes are created, listed, read, rebuilt and dropped', async () => {
  const definitions: Array<Omit<Index, 'status' | 'statistics'>> = [
    { name: 'by_genre', collection: 'films', field_name: 'genre', index_type: 'btree' },
    {
      name: 'by_genre_year',
      collection: 'films',
      field_name: 'genre',
      index_type: 'composite',
      fields: ['genre', 'year'],
      options: { unique: false },
    },
  ];
  const made = await database.createIndexes('films', definitions);
  expect(made).toMatchObject(definitions.map(({ name }) => ({ name, status: 'ready' })));
  expect((await database.listIndexes()).map(({ name }: Named) => name)).toContain('by_genre');
  expect(await database.listIndexes('films', true)).toHaveLength(3);
  expect(await database.getIndex('films', 'by_genre')).toMatchObject({ field_name: 'genre', index_type: 'btree' });
  expect(await database.getIndexStatus('films', 'by_genre')).toMatchObject({ building: false, created_at: time });
  expect((await database.getIndexStatistics('films', 'by_genre')).size).toBeGreaterThan(0);
  expect(await database.rebuildIndex('films', 'by_genre', { background: true })).toMatchObject({ success: true });
  expect(await database.dropIndex('films', 'by_genre_year')).toMatchObject({ success: true });
  await expect(database.getIndex('films', 'by_genre_year')).rejects.toMatchObject({ response: { status: 404 } });
});

test('the static functions of the query builder create indexes, a primary one as unique', async () => {
  const { app, granary } = fixture;
  OnChainDB.configure(createHttpClient({ type: 'fetch' }), granary.url, app.key);
  await OnChainDB.createIndex(app.appId, 'static', 'kind');
  await OnChainDB.createUniqueIndex(app.appId, 'static', 'code', { storeValues: false });
  OnChainDB.reset();
  const made = (await database.listIndexes('static')) as unknown as Array<{ name: string; unique: boolean }>;
  expect(made.map(({ name, unique }) => [name, unique])).toEqual([
    ['static_kind_idx', false],
    ['static_code_idx', true],
  ]);
});

test('views are created, listed, read, refreshed, queried and deleted', async () => {
  const query = { filter: { year: { gt: 1980 } }, groupBy: 'genre', aggregate: { films: { $count: '*' } } };
  const made = (await database.createView('by_genre', ['films'], query)) as unknown as { ticket_id: string };
  await fixture.client.waitForTaskCompletion(made.ticket_id, 50);
  expect(await database.listViews()).toMatchObject([
    { name: 'by_genre', source_collections: ['films'], created_at: time },
  ]);
  expect(await database.getView('by_genre')).toMatchObject({ name: 'by_genre', query });
  const refreshed = (await database.refreshView('by_genre')) as unknown as { success: boolean; ticket_id: string };
  expect(refreshed.success).toBe(true);
  await fixture.client.waitForTaskCompletion(refreshed.ticket_id, 50);
  const rows = await fixture.client.queryBuilder().collection('by_genre').orderBy('genre').execute();
  expect(rows.records).toEqual([
    { genre: 'comedy', films: 1 },
    { genre: 'crime', films: 2 },
  ]);
  expect(await database.deleteView('by_genre')).toMatchObject({ success: true });
  expect(await database.listViews()).toEqual([]);
});

test('statistics have the names that the client declares', async () => {
  const stats = await database.getDatabaseStats();
  expect(stats).toMatchObject({
    total_collections: 4,
    total_documents: 5,
    total_indexes: (await database.listIndexes()).length,
    active_connections: 0,
  });
  expect(stats.storage_size).toBeGreaterThan(300);
  expect(stats.index_size).toBeGreaterThan(0);
  const ofFilms = await database.getCollectionStats('films');
  expect(ofFilms).toMatchObject({ document_count: 3, created_at: time, updated_at: time });
  expect(ofFilms.avg_document_size).toBe(Math.round(ofFilms.storage_size / 3));
});

test('a batch answers with a result for each of its operations', async () => {
  const results = await database.executeBatch([
    { operation: 'create', collection: 'batches', data: { id: 'a', n: 1 } },
    { operation: 'update', collection: 'batches', data: { id: 'a', n: 2 }, conditions: { n: 1 } },
    { operation: 'delete', collection: 'batches', data: { id: 'b' } },
    { operation: 'delete', collection: 'batches', data: {}, conditions: { id: 'c' } },
  ]);
  expect(results).toMatchObject([
    { success: true, operation: 'create', collection: 'batches', result: { id: 'a', version: 1 } },
    { success: true, operation: 'update', collection: 'batches', result: { id: 'a', version: 2 } },
    { success: false, operation: 'delete', collection: 'batches', error: 'There is no document b' },
    { success: false, operation: 'delete', collection: 'batches', error: 'There is no document c' },
  ]);
});

test('the health of the service and of an app is answered', async () => {
  expect(await fixture.client.health()).toMatchObject({ status: 'ok', version: expect.any(String) as unknown });
  expect(await database.healthCheck()).toMatchObject({
    healthy: true,
    features: expect.arrayContaining(['views']) as unknown,
  });
});

test('getPricingQuote tells what a write costs, with the fields that are indexed', async () => {
  const collection = 'priced';
  await database.createIndex({ name: 'by_n', collection, field_name: 'n', index_type: 'btree' });
  await database.createPriceIndex(collection, 'total');
  const asked = { app_id: fixture.app.appId, operation_type: 'write' as const, size_kb: 3, collection };
  const quote = await fixture.client.getPricingQuote({ ...asked, data: { total: 250_000 } });
  expect(quote).toMatchObject({
    type: 'write_quote_with_indexing',
    indexing_costs: { n: 0, total: 0 },
    base_total_cost_utia: 0,
    total_cost: 0.25,
    total_cost_utia: 250_000,
    indexed_fields_count: 2,
    request: asked,
    currency: 'TIA',
    creator_premium: { creator_revenue: 0.2, platform_revenue: 0.05, revenue_split: '80/20' },
  });
  expect((await fixture.client.getPricingQuote({ ...asked, operation_type: 'read' })).type).toBe('read_quote');
});
