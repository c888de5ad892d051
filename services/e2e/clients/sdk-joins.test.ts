import { eventually } from '@granary/testing/eventually';
import { startSdkFixture, type SdkFixture } from './sdk';

let fixture: SdkFixture;
beforeAll(async () => {
  fixture = await startSdkFixture();
  await fixture.client.store({
    collection: 'users',
    data: [
      { id: 'u1', address: 'a', name: 'Ann' },
      { id: 'u2', address: 'b', name: 'Bob' },
    ],
  });
  await fixture.client.store({
    collection: 'tweets',
    data: [
      { id: 't1', author: 'a', reply_to_id: null },
      { id: 't2', author: 'b', reply_to_id: 't1' },
      { id: 't3', author: 'nobody', reply_to_id: 't1' },
    ],
  });
});
afterAll(() => fixture.stop());

test('joinOne, joinMany and nested joins add the records of other collections', async () => {
  const thread = await fixture.client
    .queryBuilder()
    .collection('tweets')
    .whereField('reply_to_id')
    .isNull()
    .joinOne('author_info', 'users')
    .onField('address')
    .equals('$data.author')
    .selectFields(['name'])
    .build()
    .joinMany('replies', 'tweets')
    .onField('reply_to_id')
    .equals('$data.id')
    .selectFields(['id', 'author'])
    .joinOne('author_info', 'users')
    .onField('address')
    .equals('$data.author')
    .selectFields(['name'])
    .build()
    .build()
    .selectAll()
    .execute();
  expect(thread.records).toEqual([
    {
      id: 't1',
      author: 'a',
      reply_to_id: null,
      author_info: { name: 'Ann' },
      replies: [
        { id: 't2', author: 'b', author_info: { name: 'Bob' } },
        { id: 't3', author: 'nobody', author_info: null },
      ],
    },
  ]);
});

test('serverJoin, and the joins that the client computes itself', async () => {
  const resolve = { find: { author: { is: '$data.address' } }, select: { id: true } };
  const users = await fixture.client
    .queryBuilder()
    .collection('users')
    .orderBy('id')
    .serverJoin('tweets', 'tweets', resolve)
    .execute();
  expect(users.records).toMatchObject([{ tweets: [{ id: 't1' }] }, { tweets: [{ id: 't2' }] }]);
  const joined = await fixture.client
    .queryBuilder()
    .collection('tweets')
    .join('users', 'address', 'author', 'user')
    .execute();
  expect(joined.records.map(({ user }) => (user as { name: string } | null)?.name)).toEqual(['Ann', 'Bob', undefined]);
});

test('createRelation indexes both sides', async () => {
  const relation = {
    parent_collection: 'users',
    parent_field: 'address',
    child_collection: 'tweets',
    child_field: 'author',
  };
  expect(await fixture.client.createRelation(relation)).toMatchObject({
    parent_collection: 'users',
    indexes_created: { parent_index: true, child_index: true },
  });
});

test('createIndex in its oldest form, price, hash and full-text indexes, explain and optimize', async () => {
  const database = fixture.client.database(fixture.app.appId);
  const made = await fixture.client.createIndex({ collection: 'users', field: 'name', type: 'string' });
  expect(made).toMatchObject({ collection: 'users' });
  expect(await database.createPriceIndex('orders', 'total')).toMatchObject({ index_type: 'price' });
  const schema = {
    name: 'posts',
    fields: {
      body: { type: 'string', index: true, indexType: 'fulltext' },
      tag: { type: 'string', index: true, indexType: 'hash' },
    },
  } as const;
  expect(await fixture.client.createCollection(schema)).toMatchObject({ success: true });
  // Postgres uses a new index once the transactions have ended that ran when it was made.
  await eventually(async () => {
    const plan = await database.explainQuery('users', { find: { name: 'Ann' } });
    return plan.indexes_used.join() === 'users_name_idx';
  });
  expect(Object.keys(await database.getOptimizationSuggestions('users'))).toEqual(
    expect.arrayContaining(['missing_indexes', 'unused_indexes', 'slow_queries', 'recommendations']),
  );
});
