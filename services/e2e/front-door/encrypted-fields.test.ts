import { hash } from 'node:crypto';
import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

interface Commits {
  commits: Array<{ documents: Array<{ sha256: string; text: string }> }>;
}

interface Refused {
  code: string;
  details: Record<string, string[]>;
}

describe.each(transports)('documents with encrypted fields (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport, 'simulated');
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
  });

  const encrypt = async (definition: object = {}) => {
    const made = await app.call<Refused>('POST', `${path}/indexes`, {
      name: 'by_email',
      collection: 'people',
      field_name: 'email',
      index_type: 'encrypted',
      ...definition,
    });
    return made;
  };
  const encrypted = async (definition: object = {}) => expect((await encrypt(definition)).status).toBe(201);
  const shownToStrangers = async () =>
    (await send<{ records: object[] }>(granary.url, 'GET', `${path}/collections/people/data`)).body.records;
  const found = async (find: object) =>
    (await app.list<{ id: string }>('people', { find })).body.records.map(({ id }) => id).sort();
  const texts = async () => (await app.call('GET', `${path}/commits?texts=true`)).text;

  test('the hashes of a commit are those of the stored texts, so a chain is verified without a key', async () => {
    await encrypted();
    await app.store('people', [{ id: 'a', email: 'x' }]);
    const { body } = await app.call<Commits>('GET', `${path}/commits?texts=true`);
    const { sha256, text } = body.commits[0]!.documents[0]!;
    expect([text.includes('$enc'), hash('sha256', text)]).toEqual([true, sha256]);
  });

  test('strangers do not see that a field is null', async () => {
    await encrypted();
    await app.store('people', [
      { id: 'a', email: null, name: 'Ann' },
      { id: 'b', email: 'x', name: 'Bob' },
    ]);
    expect(await shownToStrangers()).toEqual([
      { id: 'a', name: 'Ann' },
      { id: 'b', name: 'Bob' },
    ]);
  });

  test('lists with null find what is null or missing', async () => {
    await encrypted();
    await app.store('people', [
      { id: 'a', email: 'x' },
      { id: 'b', email: null },
      { id: 'c' },
      { id: 'd', email: 'y' },
    ]);
    expect(await found({ email: { in: [null, 'x'] } })).toEqual(['a', 'b', 'c']);
    expect(await found({ email: { notIn: [null, 'x'] } })).toEqual(['d']);
  });

  test('a default is encrypted wherever the field is in it', async () => {
    const fields = { contact: { type: 'object', default: { email: 'nobody', city: 'Bern' } } };
    await app.call('POST', `${path}/collections`, { name: 'people', schema_definition: { fields } });
    await encrypted({ field_name: 'contact.email' });
    await app.store('people', [{ id: 'a' }]);
    expect(await texts()).not.toContain('nobody');
    expect(await shownToStrangers()).toEqual([{ id: 'a', contact: { city: 'Bern' } }]);
    expect(await found({ 'contact.email': 'nobody' })).toEqual(['a']);
    const read = await app.call('GET', `${path}/collections/people/documents/a`);
    expect(read.body).toEqual({ id: 'a', contact: { email: 'nobody', city: 'Bern' } });
  });

  test('a default that cannot be encrypted is refused where a document needs it', async () => {
    const fields = { email: { type: 'array', default: ['x'] } };
    await app.call('POST', `${path}/collections`, { name: 'people', schema_definition: { fields } });
    await encrypted();
    const refused = await app.call<Refused>('POST', '/store', { root: `${app.appId}::people`, data: [{ id: 'a' }] });
    expect([refused.status, Object.keys(refused.body.details)]).toEqual([422, ['data[0].email']]);
  });

  test('a document of the largest size can be changed and encrypted by another key', async () => {
    await encrypted();
    const email = 'x'.repeat(1024 * 1024 - 100);
    await app.store('people', [{ id: 'a', email }]);
    const document = `${path}/collections/people/documents/a`;
    const patched = await app.call('PATCH', document, { n: 1 });
    expect([patched.status, patched.text === JSON.stringify({ id: 'a', email, n: 1 })]).toEqual([200, true]);
    const { body } = await app.call<{ ticket_id: string }>('POST', `${path}/encryption/rotate`);
    expect(await app.ended(body.ticket_id)).toMatchObject({ status: 'Completed', result: { documents: 1, left: 0 } });
    expect((await app.call('DELETE', document)).status).toBe(200);
    const tooLarge = await app.call<Refused>('POST', '/store', {
      root: `${app.appId}::people`,
      data: [{ id: 'b', email: 'x'.repeat(1024 * 1024) }],
    });
    expect([tooLarge.status, tooLarge.body.code]).toEqual([413, 'DOCUMENT_TOO_LARGE']);
  });

  test('a merge patch cannot make a document larger than others may be', async () => {
    await encrypted();
    await app.store('people', [{ id: 'a', email: 'x'.repeat(1024 * 1024 - 100) }]);
    const refused = await app.call<Refused>('PATCH', `${path}/collections/people/documents/a`, { n: 'x'.repeat(200) });
    expect([refused.status, refused.body.code]).toEqual([413, 'DOCUMENT_TOO_LARGE']);
  });

  test('no answer shows a blind index where the field has no index', async () => {
    await encrypted();
    await app.store('people', [
      { id: 'a', email: 'x' },
      { id: 'b', email: 'x' },
    ]);
    const explain = (query: object) => app.call('POST', `${path}/collections/people/explain`, { query });
    const query = { find: { email: 'x' } };
    expect((await explain(query)).text).not.toContain('$term');
    expect((await app.call('DELETE', `${path}/collections/people/indexes/by_email`)).status).toBe(200);
    const explained = await explain(query);
    expect([explained.status, explained.text.includes('$term')]).toEqual([200, false]);
    const joined = { find: { same: { model: 'people', resolve: { find: { email: 'x' } } } } };
    const explainedJoin = await explain(joined);
    expect([explainedJoin.status, explainedJoin.text.includes('$term')]).toEqual([200, false]);
    expect((await app.list('people', query)).status).toBe(200);
    const optimized = await app.call('GET', `${path}/collections/people/optimize`);
    expect(optimized.text).not.toContain('$term');
    const refused = await encrypt({ options: { unique: true } });
    expect([refused.status, refused.body.code]).toEqual([409, 'UNIQUE_VIOLATION']);
    const [, term] = /term\\":\\"([\w-]{43})/.exec(await texts())!;
    expect(refused.text).not.toContain(term);
  });
});
