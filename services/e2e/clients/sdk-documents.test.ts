import {
  type BatchOperations,
  BulkBuilder,
  LogicalOperator,
  OnChainDB,
  createHttpClient,
  type QueryBuilder,
} from '@onchaindb/sdk';
import { films, startSdkFixture, type Film, type SdkFixture } from './sdk';

type Condition = Parameters<typeof LogicalOperator.Condition>[0];

let fixture: SdkFixture;
beforeAll(async () => {
  fixture = await startSdkFixture();
  await fixture.client.store({ collection: 'films', data: films });
});
afterAll(() => fixture.stop());

const all = (): QueryBuilder => fixture.client.queryBuilder().collection('films');
const ids = async (query: QueryBuilder) =>
  (await query.execute<Film>()).records
    .map(({ id }) => id)
    .sort()
    .join();

test('expressions, networks, base64 and data sets are operators too', async () => {
  const { app, client } = fixture;
  await client.store({
    collection: 'hosts',
    data: [
      { id: 'in', ip: '10.1.2.3', text: 'aGk=', plain: 'hi' },
      { id: 'out', ip: '9.9.9.9', text: 'bm8=', plain: 'no' },
      { id: 'six', ip: '2620:fe::fe', plain: 'yes' },
    ],
  });
  expect(
    (await app.call('PUT', `/api/apps/${app.appId}/datasets/words`, { values: ['hi', 'yes'] })).status,
  ).toBeLessThan(300);
  const by = (field: string) => client.queryBuilder().collection('hosts').whereField(field);
  const found: Array<[QueryBuilder, string]> = [
    [by('plain').regExpMatches('^(hi|no)$'), 'in,out'],
    [by('ip').cidr('10.0.0.0/8'), 'in'],
    [by('ip').isLocalIp(), 'in'],
    [by('ip').isExternalIp(), 'out,six'],
    [by('plain').b64('aGk='), 'in'],
    [by('plain').inDataset('words'), 'in,six'],
  ];
  for (const [query, expected] of found) expect(await ids(query)).toBe(expected);
});

test('store answers with the height of the commit, and tells of it by events', async () => {
  const { client } = fixture;
  const events: string[] = [];
  for (const event of ['transaction:queued', 'transaction:confirmed'] as const)
    client.on(event, () => events.push(event));
  const stored = await client.store({ collection: 'notes', data: [{ id: 'n', text: 'one' }] });
  expect(stored).toMatchObject({ id: 'n', confirmed: true, namespace: `${fixture.app.appId}::notes` });
  expect(stored.celestia_height).toBeGreaterThan(0);
  expect(stored.transaction_hash).toMatch(/^[0-9a-f]{64}$/);
  expect(events).toEqual(['transaction:queued', 'transaction:confirmed']);
  const queued = await client.store({ collection: 'notes', data: [{ text: 'two' }] }, undefined, false);
  expect((await client.getTaskStatus(queued.ticket_id!)).status).toBe('Completed');
  expect(await client.waitForTaskCompletion(queued.ticket_id!)).toMatchObject({ result: { results: [{}] } });
  await expect(client.storeAndConfirm({ collection: 'notes', data: [{ id: 'm' }] })).resolves.toMatchObject({
    id: 'm',
  });
  await expect(client.store({ collection: 'a b', data: [{}] })).rejects.toMatchObject({ code: 'STORE_ERROR' });
});

test('every operator of the builder that needs no further data finds what it says', async () => {
  const by = (field: string) => all().whereField(field);
  const found: Array<[QueryBuilder, string]> = [
    [by('title').equals('Heat'), 'f1'],
    [by('title').notEquals('Heat'), 'f2,f3'],
    [by('year').greaterThan(1995), 'f2'],
    [by('year').greaterThanOrEqual(1995), 'f1,f2'],
    [by('year').lessThan(1995), 'f3'],
    [by('year').lessThanOrEqual(1995), 'f1,f3'],
    [by('year').between(1988, 1995), 'f1,f3'],
    [by('title').contains('on'), 'f2'],
    [by('title').startsWith('He'), 'f1'],
    [by('title').endsWith('g'), 'f3'],
    [by('title').includesCaseInsensitive('RON'), 'f2'],
    [by('title').startsWithCaseInsensitive('hE'), 'f1'],
    [by('title').endsWithCaseInsensitive('IG'), 'f3'],
    [by('year').in([1988, 1998]), 'f2,f3'],
    [by('year').notIn([1988, 1998]), 'f1'],
    [by('rating').isNull(), 'f3'],
    [by('rating').isNotNull(), 'f1,f2'],
    [by('studio').exists(), 'f1,f2,f3'],
    [by('nothing').notExists(), 'f1,f2,f3'],
    [by('seen').isTrue(), 'f1,f3'],
    [by('seen').isFalse(), 'f2'],
    [by('studio.city').equals('Burbank'), 'f1,f3'],
  ];
  for (const [query, expected] of found) expect(await ids(query)).toBe(expected);
});

test('conditions nest with and, or, not and below objects', async () => {
  const condition = (of: Condition) => LogicalOperator.Condition(of);
  expect(
    await ids(
      all().find((where) =>
        LogicalOperator.And([
          condition(where.field('seen').equals(true)),
          LogicalOperator.Or([
            condition(where.field('year').lessThan(1990)),
            condition(where.field('studio.city').equals('Nowhere')),
          ]),
        ]),
      ),
    ),
  ).toBe('f3');
  expect(await ids(all().find((where) => LogicalOperator.Not([condition(where.field('genre').equals('crime'))])))).toBe(
    'f3',
  );
  expect(
    await ids(
      all().find((where) =>
        where.orGroup(() => [
          condition(where.nested('studio', (studio) => studio.field('city').endsWith('Angeles') as never) as never),
          condition(where.field('id').equals('f3')),
        ]),
      ),
    ),
  ).toBe('f2,f3');
});

test('a query selects fields, pages, sorts and shows history', async () => {
  const page = await all().selectFields(['id', 'studio.city']).orderBy('year').limit(2).offset(1).execute<Film>();
  expect(page).toMatchObject({ total: 3, page: 1, limit: 2 });
  expect(page.records).toEqual([
    { id: 'f1', studio: { city: 'Burbank' } },
    { id: 'f2', studio: { city: 'Los Angeles' } },
  ]);
  const nested = await all()
    .whereField('id')
    .equals('f1')
    .select((fields) => fields.field('title').nested('studio', (studio) => studio.field('city')))
    .execute();
  expect(nested.records).toEqual([{ title: 'Heat', studio: { city: 'Burbank' } }]);
  const without = await all()
    .select((fields) => fields.excludeFields(['studio', 'rating', 'seen']))
    .limit(1)
    .execute();
  expect(Object.keys(without.records[0]!)).toEqual(['id', 'title', 'year', 'genre']);
  await fixture.client.store({ collection: 'versions', data: [{ id: 'v', n: 1 }] });
  await fixture.client.store({ collection: 'versions', data: [{ id: 'v', n: 2 }] });
  const versions = fixture.client.queryBuilder().collection('versions');
  expect((await versions.execute()).records).toHaveLength(1);
  expect((await versions.includeHistory().execute()).records).toHaveLength(2);
});

test('the aggregates that the client computes are those of the documents', async () => {
  expect(await all().count()).toBe(3);
  expect(await all().sumBy('year')).toBe(5981);
  expect(await all().avgBy('rating')).toBeCloseTo(15.5 / 3);
  expect([await all().minBy('year'), await all().maxBy('year')]).toEqual([1988, 1998]);
  expect((await all().distinctBy<string>('genre')).sort()).toEqual(['comedy', 'crime']);
  expect(await all().countDistinct('genre')).toBe(2);
  expect(await all().groupBy('genre').count()).toEqual({ crime: 2, comedy: 1 });
  expect(await all().groupBy('studio.city').sumBy('year')).toEqual({ Burbank: 3983, 'Los Angeles': 1998 });
  expect(await all().executeUnique<Film>()).toMatchObject({ id: expect.any(String) as unknown });
});

test('documents are created, found, changed and soft-deleted', async () => {
  const { client } = fixture;
  const made = await client.createDocument<Film>('books', { title: 'Emma', year: 1815 });
  expect(await client.findUnique<Film>('books', { id: made.id })).toMatchObject({ title: 'Emma' });
  expect(await client.updateDocument<Film>('books', { id: made.id }, { year: 1816 })).toMatchObject({ year: 1816 });
  const key = () => 'made-by-hand';
  const upserted = await client.upsertDocument<Film>(
    'books',
    { title: 'Persuasion' },
    { title: 'Persuasion', year: 1817 },
    { year: 1818 },
    undefined,
    { idGenerator: key },
  );
  expect(upserted).toMatchObject({ id: 'made-by-hand', year: 1817 });
  expect(await client.countDocuments('books')).toBe(2);
  const sorted = await client.findMany<Film>('books', {}, { limit: 10, sort: { field: 'year', order: 'desc' } });
  expect(sorted.map(({ year }) => year)).toEqual([1817, 1816]);
  expect(await client.deleteDocument('books', { id: made.id })).toBe(true);
  expect(await client.findUnique('books', { id: made.id })).toMatchObject({ deleted: true });
  expect(await client.findUnique('books', { id: 'none' })).toBeNull();
});

test('many writes go in batches', async () => {
  const bulk = new BulkBuilder();
  const rows = Array.from({ length: 25 }, (_, at) => ({ id: `b${at}` }));
  bulk.addMany(rows, 'bulk', fixture.app.appId);
  const seen: number[] = [];
  const batch = fixture.client.batch() as BatchOperations;
  const results = await batch.store(bulk.build(), {
    concurrency: 5,
    waitForConfirmation: true,
    onProgress: (completed: number) => seen.push(completed),
  });
  expect(results.filter(({ confirmed }) => confirmed)).toHaveLength(25);
  expect(seen.at(-1)).toBe(25);
  expect(await fixture.client.countDocuments('bulk')).toBe(25);
});

test('a raw query in JSON is sent as it is', async () => {
  const { app, granary } = fixture;
  const withKey: typeof fetch = (url, init) =>
    fetch(url, { ...init, headers: { ...init?.headers, 'x-app-key': app.key } });
  const http = createHttpClient({ type: 'fetch', fetchImplementation: withKey });
  const query = { root: `${app.appId}::films`, find: { year: { gt: 1990 } }, select: { id: true }, sort: ['year'] };
  const wanted = { data: { records: [{ id: 'f1' }, { id: 'f2' }] } };
  expect(await OnChainDB.rawQuery(JSON.stringify(query), http, granary.url)).toMatchObject(wanted);
  expect(await OnChainDB.queryFromJson(query, http, granary.url)).toMatchObject(wanted);
});

test('blobs are uploaded with metadata, found by it and read', async () => {
  const { client } = fixture;
  const blob = new Blob(['some bytes'], { type: 'text/plain' });
  const upload = await client.uploadBlob({ collection: 'files', blob, metadata: { topic: 'tests' } });
  expect((await client.waitForTaskCompletion(upload.ticket_id)).status).toBe('Completed');
  const [found] = await client.queryBlobMetadata('files', { topic: 'tests' });
  expect(found).toMatchObject({ blob_id: upload.blob_id, content_type: 'text/plain', size_bytes: 10 });
  const read = await client.retrieveBlob({ collection: 'files', blob_id: upload.blob_id });
  expect(Buffer.from(read as Buffer).toString()).toBe('some bytes');
});
