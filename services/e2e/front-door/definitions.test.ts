import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

interface Refusal {
  error: string;
  code: string;
  details: { used_by?: string[] };
}

describe.each(transports)('definitions that depend on one another (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
  });

  const index = (definition: object) =>
    app.call('POST', `${path}/indexes`, { collection: 'films', index_type: 'btree', ...definition });
  const query = (definition: object) =>
    app.call('POST', `/apps/${app.appId}/queries`, { source_collection: 'films', ...definition });
  const drop = (name: string) => app.call<Refusal>('DELETE', `${path}/collections/films/indexes/${name}`);
  const indexNames = async () =>
    (await app.call<Array<{ name: string }>>('GET', `${path}/indexes`)).body.map(({ name }) => name);

  test('an index in a collection that does not exist creates it, says so, and names one that may be meant', async () => {
    await app.store('recipes', [{ id: '1', cuisine: 'thai' }]);
    const created = (name: string) => ({ created_collection: { name, access_policy: { read: 'public' } } });
    const misspelt = await index({ name: 'by_cuisine', collection: 'recpies', field_name: 'cuisine' });
    expect(misspelt.status).toBe(201);
    expect(misspelt.body).toMatchObject(created('recpies'));
    const warning = 'There was no collection recpies, so it was created. Did you mean recipes?';
    expect(misspelt.body).toMatchObject({ warnings: [warning] });
    const short = await app.call('POST', `${path}/collections/Recipes/indexes`, { field_name: 'cuisine' });
    expect(short.body).toMatchObject({ ...created('Recipes'), warnings: [expect.stringContaining('mean recipes?')] });

    const other = await index({ name: 'by_year', field_name: 'year' });
    expect(other.body).toMatchObject(created('films'));
    expect(other.body).not.toHaveProperty('warnings');
    const existing = await index({ name: 'by_genre', field_name: 'genre' });
    expect(existing.body).not.toHaveProperty('created_collection');
    expect(existing.body).not.toHaveProperty('warnings');
  });

  test('a view, a predefined query and a relation need their collections, and a refusal names what is near', async () => {
    await app.store('recipes', [{ id: '1', cook: 'ann' }]);
    const names = async () => (await app.call<Array<{ name: string }>>('GET', `${path}/collections`)).body.length;
    const relation = {
      parent_collection: 'cooks',
      parent_field: 'name',
      child_collection: 'recipes',
      child_field: 'cook',
    };
    const near = (model: string) => ({ cooked: { model, resolve: { find: {} } } });
    const before = await names();
    for (const refused of [
      await app.call('POST', `/apps/${app.appId}/views`, { name: 'v', source_collections: ['recipe'], query: {} }),
      await query({ name: 'q', source_collection: 'recipe', base_query: {} }),
      await app.call('POST', `${path}/relations`, { ...relation, parent_collection: 'recipe' }),
      await app.call('POST', `${path}/relations`, {
        ...relation,
        parent_collection: 'recipes',
        child_collection: 'recipe',
      }),
    ]) {
      expect(refused).toMatchObject({
        status: 404,
        body: { code: 'COLLECTION_NOT_FOUND', error: 'There is no collection recipe. Did you mean recipes?' },
      });
    }
    const joined = await query({ name: 'q', source_collection: 'recipes', base_query: { find: near('recipe') } });
    expect(joined.status).toBe(400);
    expect(joined.text).toContain('Did you mean recipes?');
    expect(await app.call('POST', `${path}/relations`, relation)).toMatchObject({
      status: 404,
      body: { error: 'There is no collection cooks' },
    });
    expect(await names()).toBe(before);
    expect((await app.call('GET', `${path}/indexes`)).body).toEqual([]);
  });

  describe('an index is not deleted', () => {
    test('while the schema declares it, by whichever route', async () => {
      const fields = { year: { type: 'number', index: true }, code: { type: 'string', unique: true } };
      await app.call('POST', `${path}/collections`, { name: 'films', schema_definition: { fields } });
      const refused = await drop('films_year_idx');
      expect(refused).toMatchObject({ status: 409, body: { code: 'INDEX_IN_USE', details: { used_by: ['schema'] } } });
      expect(refused.body.error).toContain('index: true for year');
      expect((await drop('films_code_idx')).body.error).toContain('unique: true for code');
      expect((await app.call('DELETE', `${path}/indexes/films_year_index`)).status).toBe(409);
      expect(await indexNames()).toEqual(['films_year_idx', 'films_code_idx']);
      expect((await send(granary.url, 'GET', `${path}/collections/films/data?year=1994`)).status).toBe(200);

      // Another index over the same field is not the one of the schema.
      await index({ name: 'by_year', field_name: 'year' });
      expect((await drop('by_year')).status).toBe(200);
      const without = { fields: { year: { type: 'number' } } };
      await app.call('PUT', `${path}/collections/films`, { schema_definition: without });
      expect((await drop('films_year_idx')).status).toBe(200);
    });

    test('while a predefined query finds or sorts by it, and no other index serves that as well', async () => {
      await index({ name: 'by_year', field_name: 'year' });
      await index({ name: 'by_genre', field_name: 'genre' });
      await index({ name: 'by_genre_year', field_name: 'genre', index_type: 'composite', fields: ['genre', 'year'] });
      await index({ name: 'by_maker', field_name: 'maker', index_type: 'hash' });
      await index({ name: 'by_rating', field_name: 'rating' });
      await index({ name: 'words', field_name: 'plot', index_type: 'fulltext' });
      await query({ name: 'newest', base_query: { sort: ['-year'] } });
      const parameters = [{ name: 'genre', field_path: 'genre' }];
      await query({ name: 'of_genre', base_query: { sort: ['year'] }, parameters });
      await query({ name: 'search', base_query: {}, parameters: [{ name: 'q', field_path: 'plot.$search' }] });
      const films = { model: 'films', resolve: { find: { maker: { is: '$data.id' } } } };
      await query({ name: 'makers', source_collection: 'films', base_query: { find: { films } }, version: '1' });

      const usersOf = async (name: string) => (await drop(name)).body.details.used_by;
      expect(await usersOf('by_year')).toEqual(['query newest', 'query of_genre']);
      expect(await usersOf('by_genre_year')).toEqual(['query of_genre']);
      expect(await usersOf('words')).toEqual(['query search']);
      const refused = await drop('by_maker');
      expect(refused).toMatchObject({ status: 409, body: { code: 'INDEX_IN_USE' } });
      expect(refused.body.error).toContain('the query makers');
      // by_genre_year begins with its field; no query asks for ratings.
      expect((await drop('by_genre')).status).toBe(200);
      expect((await drop('by_rating')).status).toBe(200);

      await app.call('DELETE', `/apps/${app.appId}/queries/makers`);
      expect((await drop('by_maker')).status).toBe(200);
      expect(await indexNames()).toEqual(['by_year', 'by_genre_year', 'words']);
    });

    test('alone; it goes with its collection', async () => {
      const fields = { year: { type: 'number', index: true } };
      await app.call('POST', `${path}/collections`, { name: 'films', schema_definition: { fields } });
      expect((await app.call('DELETE', `${path}/collections/films`)).status).toBe(200);
      expect(await indexNames()).toEqual([]);
    });
  });
});
