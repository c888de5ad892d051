import { createLogger } from '@granary/shared/logger';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { borrowGranary, newApp, send, transports, type Answer, type Granary, type TestApp } from '../support/granary';

interface Made {
  code?: string;
  status?: string;
  details?: Record<string, string[]>;
  updated?: boolean;
}

interface Person {
  id: string;
  email?: unknown;
  name?: string;
}

describe.each(transports)('encrypted fields (%s)', (transport) => {
  let granary: Granary;
  let pool: Pool;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport, 'simulated');
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

  const encrypt = (definition: object = {}) =>
    app.call<Made>('POST', `${path}/indexes`, {
      name: 'by_email',
      collection: 'people',
      field_name: 'email',
      index_type: 'encrypted',
      ...definition,
    });
  const encrypted = async (definition: object = {}) => {
    const made = await encrypt(definition);
    expect([made.status, made.text]).toEqual([201, expect.stringContaining('"ready"')]);
  };
  const index = (definition: object) =>
    app.call<Made>('POST', `${path}/indexes`, { name: 'other', collection: 'people', ...definition });
  const newKey = async (...permissions: string[]) => {
    const body = { name: permissions.join(''), permissions };
    return (await app.call<{ app_key: string }>('POST', `${path}/regenerate-key`, body)).body.app_key;
  };
  const data = (query = '', key?: string) =>
    send<{ records: Person[]; code?: string }>(granary.url, 'GET', `${path}/collections/people/data?${query}`, {
      ...(key !== undefined && { key }),
    });
  const ids = ({ body: { records } }: Answer<{ records: Person[] }>) => records.map(({ id }) => id).sort();
  const found = async (find: object) => ids(await app.list<Person>('people', { find }));
  /** The texts of all versions, as Postgres has them. */
  const stored = async () => {
    const { rows } = await pool.query<{ app: string; number: string }>(
      `select p.number::text as app, c.number::text as number from collection c join application p on p.number = c.app_number
       where p.app_id = $1 and c.name = 'people'`,
      [app.appId],
    );
    const { app: a, number } = rows[0]!;
    const texts = await pool.query<{ body: string }>(
      `select body from a_${a}.c_${number} union all select body from a_${a}.h_${number}`,
    );
    return texts.rows.map(({ body }) => body);
  };
  /** A statement that reads the present documents. */
  const present = async () => {
    const { rows } = await pool.query<{ app: string; number: string }>(
      `select p.number::text as app, c.number::text as number from collection c join application p on p.number = c.app_number
       where p.app_id = $1 and c.name = 'people'`,
      [app.appId],
    );
    return `select body, deleted from a_${rows[0]!.app}.c_${rows[0]!.number}`;
  };
  const three = [
    { id: 'a', email: 'ann@example.com', name: 'Ann' },
    { id: 'b', email: 'bob@example.com', name: 'Bob' },
    { id: 'c', name: 'Cid' },
  ];

  test('values are stored encrypted, and keys with Read get them exactly as they were sent', async () => {
    await encrypted();
    const sent = '{"id":"a", "email" : "ann\\u0040example.com","n":1.50}';
    await app.call('POST', '/store', Buffer.from(`{"root":"${app.appId}::people","data":[${sent}]}`));
    for (const text of await stored()) {
      expect(text).toMatch(/^\{"id":"a", "email" : \{"\$enc":"v1\.1\.[\w-]+","\$term":"[\w-]{43}"\},"n":1\.50\}$/);
    }
    const read = await app.call('GET', `${path}/collections/people/documents/a`);
    expect(read.text).toBe(sent);
    expect((await app.list('people')).text).toContain(sent);
    expect((await data('', app.key)).text).toContain(sent);
    expect((await app.list('people', { find: { email: 'ann@example.com' } })).text).toContain(sent);
  });

  test('equality finds documents by every entrance, through the index', async () => {
    await encrypted();
    await app.store('people', three);
    expect(await found({ email: 'ann@example.com' })).toEqual(['a']);
    expect(await found({ email: { in: ['ann@example.com', 'bob@example.com', 'none'] } })).toEqual(['a', 'b']);
    expect(await found({ email: { isNot: 'ann@example.com' } })).toEqual(['b', 'c']);
    expect(await found({ email: { isNull: true } })).toEqual(['c']);
    expect(await found({ email: { exists: true } })).toEqual(['a', 'b']);
    expect(await found({ or: [{ email: 'bob@example.com' }, { name: 'Cid' }] })).toEqual(['b', 'c']);
    expect(await found({ email: { is: 'ANN@example.com' } })).toEqual([]);
    expect(ids(await data('email=bob@example.com', app.key))).toEqual(['b']);
    const defined = await app.call('POST', `${path}/queries`, {
      name: 'by_mail',
      source_collection: 'people',
      base_query: { find: { email: 'ann@example.com' } },
    });
    expect([defined.status, defined.text]).toEqual([201, expect.any(String)]);
    const run = (key?: string) =>
      send<{ records: Person[] }>(granary.url, 'GET', `/api/queries/${app.appId}/by_mail/data`, {
        ...(key !== undefined && { key }),
      });
    expect([ids(await run(app.key)), (await run()).status]).toEqual([['a'], 401]);
    const explained = await app.call<{ indexes_used: string[] }>('POST', `${path}/collections/people/explain`, {
      query: { find: { email: 'ann@example.com' } },
    });
    expect([explained.status, explained.body.indexes_used]).toEqual([200, ['by_email']]);
  });

  test('numbers are equal by their value, and types are told apart', async () => {
    await encrypted();
    await app.store('people', [
      { id: 'n', email: 1.5 },
      { id: 's', email: '1.5' },
      { id: 't', email: true },
      { id: 'z', email: null },
    ]);
    const list = (find: string) =>
      app.call<{ records: Person[] }>('POST', '/list', Buffer.from(`{"root":"${app.appId}::people","find":${find}}`));
    expect(ids(await list('{"email":15e-1}'))).toEqual(['n']);
    expect(await found({ email: '1.5' })).toEqual(['s']);
    expect(await found({ email: true })).toEqual(['t']);
    expect(await found({ email: null })).toEqual(['z']);
    expect(ids(await data('email=1.5', app.key))).toEqual(['n', 's']);
    expect((await stored()).filter((text) => text.includes('$enc'))).toHaveLength(3);
  });

  test('everybody else sees neither the field nor a match', async () => {
    await encrypted();
    await app.store('people', three);
    const agent = await newKey('Pay');
    for (const key of [undefined, agent]) {
      const all = await data('', key);
      expect([all.status, all.text.includes('$enc'), all.text.includes('example.com')]).toEqual([200, false, false]);
      expect(all.body.records).toEqual([
        { id: 'a', name: 'Ann' },
        { id: 'b', name: 'Bob' },
        { id: 'c', name: 'Cid' },
      ]);
      for (const query of ['email=ann@example.com', 'email.$isNull=true', 'email.$ne=x']) {
        const asked = await data(query, key);
        expect([asked.status, asked.body.code]).toEqual(key === agent ? [403, 'FORBIDDEN'] : [401, 'UNAUTHENTICATED']);
      }
      expect((await data('sort=email', key)).status).toBe(400);
      expect((await data('select=email', key)).body.records).toEqual([{}, {}, {}]);
    }
  });

  test('keys with Write alone see no value in answers, and learn nothing from conditions', async () => {
    await encrypted();
    await app.store('people', three);
    const key = await newKey('Write');
    const write = (method: string, body: object) =>
      send(granary.url, method, `${path}/collections/people/documents/a`, { key, body });
    const patched = await write('PATCH', { name: 'Anna' });
    expect([patched.status, patched.text]).toEqual([200, expect.not.stringContaining('example.com')]);
    expect(patched.text).not.toContain('$enc');
    const batch = await send(granary.url, 'POST', `${path}/batch`, {
      key,
      body: {
        atomic: true,
        operations: [
          { operation: 'update', collection: 'people', data: { id: 'a' }, conditions: { email: 'ann@example.com' } },
        ],
      },
    });
    expect(batch.status).toBe(401);
    const own = await app.call('PATCH', `${path}/collections/people/documents/a`, { name: 'Ann' });
    expect([own.status, own.body]).toEqual([200, three[0]]);
  });

  test('a merge patch keeps the value, and replaces or removes it', async () => {
    await encrypted();
    await app.store('people', three);
    const document = `${path}/collections/people/documents/a`;
    const [before] = (await stored()).filter((text) => text.includes('Ann'));
    expect((await app.call('PATCH', document, { name: 'Anna' })).status).toBe(200);
    const kept = (await stored()).find((text) => text.includes('"Anna"'))!;
    expect(kept).toContain(/"email":\{[^}]*\}/.exec(before!)![0]);
    expect(await found({ email: 'ann@example.com' })).toEqual(['a']);
    expect((await app.call('PATCH', document, { email: 'new@example.com' })).status).toBe(200);
    expect([await found({ email: 'ann@example.com' }), await found({ email: 'new@example.com' })]).toEqual([[], ['a']]);
    expect((await app.call('PATCH', document, { email: null })).body).toEqual({ id: 'a', name: 'Anna' });
    expect(await found({ email: null })).toEqual(['a', 'c']);
    for (const email of [{ $enc: 'v1.1.AAAA' }, { $term: 'x'.repeat(43) }, { a: 1 }, ['x']]) {
      const refused = await app.call<Made>('PATCH', `${path}/collections/people/documents/b`, { email });
      expect([refused.status, refused.body.code]).toEqual([422, 'SCHEMA_VIOLATION']);
    }
  });

  test('a stored value that is moved to another document or field is refused', async () => {
    await encrypted();
    await encrypted({ name: 'by_phone', field_name: 'phone' });
    await app.store('people', [{ id: 'a', email: 'secret' }]);
    const [text] = await stored();
    const { email } = JSON.parse(text!) as { email: object };
    const moved = [
      { id: 'b', email },
      { id: 'a', phone: email },
    ];
    for (const one of moved) {
      const refused = await app.call<Made>('POST', '/store', { root: `${app.appId}::people`, data: [one] });
      expect([refused.status, refused.body.code]).toEqual([422, 'SCHEMA_VIOLATION']);
    }
    const same = await app.call('POST', '/store', { root: `${app.appId}::people`, data: [{ id: 'a', email }] });
    expect(same.status).toBe(202);
    expect((await app.call('GET', `${path}/collections/people/documents/a`)).body).toEqual({
      id: 'a',
      email: 'secret',
    });
  });

  test('nested fields, defaults and rules of a schema apply to the value', async () => {
    const schema = {
      fields: {
        email: { type: 'string', default: 'nobody', validation: { pattern: '^[a-z@.]+$' } },
        'contact.phone': { type: 'string' },
      },
    };
    const made = await app.call('POST', `${path}/collections`, { name: 'people', schema_definition: schema });
    expect(made.status).toBe(201);
    await encrypted();
    await encrypted({ name: 'by_phone', field_name: 'contact.phone' });
    await app.store('people', [{ id: 'a', contact: { phone: '0815', city: 'Bern' } }]);
    expect((await stored())[0]).toMatch(/^\{"email":\{"\$enc".*"contact":\{"phone":\{"\$enc".*"city":"Bern"\}\}$/);
    expect(await found({ 'contact.phone': '0815' })).toEqual(['a']);
    expect(await found({ contact: { phone: '0815' }, email: 'nobody' })).toEqual(['a']);
    expect((await app.call('GET', `${path}/collections/people/documents/a`)).body).toEqual({
      id: 'a',
      email: 'nobody',
      contact: { phone: '0815', city: 'Bern' },
    });
    const patched = await app.call('PATCH', `${path}/collections/people/documents/a`, { contact: { city: 'Biel' } });
    expect(patched.status).toBe(200);
    const refused = await app.call<Made>('POST', '/store', { root: `${app.appId}::people`, data: [{ email: 'A1' }] });
    expect([refused.status, Object.keys(refused.body.details!)]).toEqual([422, ['data[0].email']]);
  });

  test('a unique encrypted index refuses a second value, and names none', async () => {
    await encrypted({ options: { unique: true } });
    await app.store('people', three);
    const refused = await app.call<Made>('POST', '/store', {
      root: `${app.appId}::people`,
      data: [{ id: 'd', email: 'ann@example.com' }],
    });
    expect([refused.status, refused.body.code]).toEqual([409, 'UNIQUE_VIOLATION']);
    expect(refused.text).not.toContain('example.com');
    expect(Object.keys(refused.body.details!)).toEqual(['data[0].email']);
  });

  test.each([
    { email: { gte: 'a' } },
    { email: { startsWith: 'a' } },
    { email: { contains: 'a' } },
    { email: { regExpMatches: 'a' } },
    { email: { $search: 'a' } },
    { not: [{ email: { between: ['a', 'b'] } }] },
  ])('%j needs the value, and is refused', async (find) => {
    await encrypted();
    await app.store('people', three);
    const refused = await app.list('people', { find });
    expect([refused.status, (refused.body as unknown as Made).code]).toEqual([400, 'INVALID_QUERY']);
  });

  test('no order, no join by it, no view over it', async () => {
    await encrypted();
    await app.store('people', three);
    await app.store('orders', [{ id: 'o', of: 'ann@example.com', by: 'a' }]);
    for (const sort of [['email'], ['-email']]) expect((await app.list('people', { sort })).status).toBe(400);
    const join = (find: object) => app.list('orders', { find: { who: { model: 'people', resolve: { find } } } });
    expect((await join({ email: '$data.of' })).status).toBe(400);
    const parent = { find: { who: { model: 'orders', resolve: { find: { of: '$data.email' } } } } };
    expect((await app.list('people', parent)).status).toBe(400);
    const joined = await join({ id: '$data.by', email: 'ann@example.com' });
    expect(joined.body.records).toEqual([{ id: 'o', of: 'ann@example.com', by: 'a', who: [three[0]] }]);
    const stranger = await send<{ code: string }>(granary.url, 'GET', `${path}/collections/people/data?select=id`);
    expect(stranger.status).toBe(200);
    const view = (query: object, refresh_mode = 'lazy') =>
      app.call<Made>('POST', `${path}/views`, { name: 'v', source_collections: ['people'], query, refresh_mode });
    for (const query of [{}, { select: ['email'] }, { find: { email: 'x' }, select: ['name'] }, { sort_by: 'email' }]) {
      for (const mode of ['lazy', 'live']) {
        const refused = await view(query, mode);
        expect([refused.status, refused.body.code]).toEqual([400, 'INVALID_QUERY']);
      }
    }
    expect((await view({ select: ['name'] })).status).toBe(202);
  });

  test('a field that a stored version has, or another index or view uses, cannot be encrypted', async () => {
    await app.store('people', [{ id: 'a', email: 'x' }]);
    await app.store('people', [{ id: 'a' }]);
    const refuse = async (definition: object) => {
      const refused = await encrypt(definition);
      expect([refused.status, refused.body.code]).toEqual([409, 'ENCRYPTION_CONFLICT']);
    };
    await refuse({});
    await app.call('POST', '/store', Buffer.from(`{"root":"${app.appId}::people","data":[{"\\u0070hone":1}]}`));
    await refuse({ field_name: 'phone' });
    expect((await index({ field_name: 'age', index_type: 'number' })).status).toBe(201);
    await refuse({ field_name: 'age' });
    const view = { name: 'v', source_collections: ['people'], query: { select: ['city'] } };
    expect((await app.call('POST', `${path}/views`, view)).status).toBe(202);
    await refuse({ field_name: 'city' });
    // Null is no value.
    await app.store('people', [{ id: 'b', note: null }]);
    await encrypted({ field_name: 'note' });
    for (const field_name of ['id', 'deleted', 'a.0', '$x', 'a.$x']) {
      const refused = await encrypt({ field_name, name: 'x' });
      expect([refused.status, refused.body.code]).toEqual([400, 'VALIDATION_FAILED']);
    }
  });

  test('another index over an encrypted field, or into it, is refused', async () => {
    await encrypted({ field_name: 'contact.email' });
    for (const field_name of ['contact.email', 'contact', 'contact.email.x']) {
      const refused = await index({ field_name, index_type: 'btree' });
      expect([refused.status, refused.body.code]).toEqual([409, 'ENCRYPTION_CONFLICT']);
    }
    const schema = { schema_definition: { fields: { contact: { type: 'object', index: true } } } };
    expect((await app.call('PUT', `${path}/collections/people`, schema)).status).toBe(409);
    const relation = {
      parent_collection: 'people',
      parent_field: 'contact.email',
      child_collection: 'people',
      child_field: 'of',
    };
    expect((await app.call('POST', `${path}/relations`, relation)).status).toBe(409);
    expect((await encrypt({ field_name: 'contact.email' })).body.updated).toBe(true);
    expect((await encrypt({ field_name: 'contact.other' })).status).toBe(409);
  });

  test('without its index the field stays encrypted, is read, and is found by a scan; another index is possible', async () => {
    await encrypted();
    await app.store('people', three);
    expect((await app.call('DELETE', `${path}/collections/people/indexes/by_email`)).status).toBe(200);
    await app.store('people', [{ id: 'd', email: 'dan@example.com' }]);
    expect((await stored()).join()).not.toContain('example.com');
    expect((await app.call('GET', `${path}/collections/people/documents/d`)).body).toMatchObject({
      email: 'dan@example.com',
    });
    expect(await found({ email: 'dan@example.com' })).toEqual(['d']);
    await encrypted({ name: 'again' });
    expect(ids(await data('email=ann@example.com', app.key))).toEqual(['a']);
  });

  test('batches, history, soft deletes and conditions work with encrypted fields', async () => {
    await encrypted();
    const batch = (operations: object[]) => app.call<object[]>('POST', `${path}/batch`, { atomic: true, operations });
    const created = await batch([
      { operation: 'create', collection: 'people', data: { id: 'a', email: 'one' } },
      { operation: 'create', collection: 'people', data: { id: 'b', email: 'two' } },
    ]);
    expect(created.status).toBe(200);
    const update = (email: object | string) =>
      batch([{ operation: 'update', collection: 'people', data: { id: 'a', n: 1 }, conditions: { email } }]);
    expect((await update('two')).status).toBe(412);
    expect((await update({ gt: 'a' })).status).toBe(400);
    expect((await update('one')).status).toBe(200);
    expect((await app.call('DELETE', `${path}/collections/people/documents/b`)).status).toBe(200);
    const history = await app.list<Person>('people', { find: { email: 'one' }, include_history: true });
    expect(history.body.records).toEqual([
      { id: 'a', email: 'one' },
      { id: 'a', email: 'one', n: 1 },
    ]);
    expect((await stored()).every((text) => !/"(one|two)"/.test(text))).toBe(true);
    const commits = await app.call('GET', `${path}/commits?texts=true`);
    expect([commits.status, commits.text.includes('$enc')]).toEqual([200, true]);
  });

  test('after a rotation new and present values have the new key, and are found and unique as before', async () => {
    const nothing = await app.call<Made>('POST', `${path}/encryption/rotate`);
    expect([nothing.status, nothing.body.code]).toEqual([409, 'ENCRYPTION_CONFLICT']);
    await encrypted({ options: { unique: true } });
    const many = Array.from({ length: 450 }, (_, n) => ({ id: `n${n}`, email: `mail-${n}` }));
    await app.store('people', [...three, ...many]);
    await app.call('DELETE', `${path}/collections/people/documents/n7`);
    const rotate = async () => {
      const { status, body } = await app.call<{ ticket_id: string }>('POST', `${path}/encryption/rotate`);
      expect(status).toBe(202);
      return app.ended(body.ticket_id);
    };
    expect(await rotate()).toMatchObject({ status: 'Completed', result: { documents: 451, left: 0 } });
    const versions = async () => {
      const { rows } = await pool.query<{ key: string; count: bigint }>(
        `select substring(json_extract_path_text(body::json, 'email', '$enc') from '^v1.([0-9]+)') as key, count(*)
         from (${await present()}) d where not deleted and body like '%$enc%' group by 1 order by 1`,
      );
      return rows;
    };
    expect(await versions()).toEqual([{ key: '2', count: 451n }]);
    await app.store('people', [{ id: 'new', email: 'new@example.com' }]);
    expect(await versions()).toEqual([{ key: '2', count: 452n }]);
    expect(await found({ email: { in: ['mail-3', 'new@example.com'] } })).toEqual(['n3', 'new']);
    const taken = await app.call<Made>('POST', '/store', {
      root: `${app.appId}::people`,
      data: [{ id: 'x', email: 'mail-3' }],
    });
    expect([taken.status, taken.body.code]).toEqual([409, 'UNIQUE_VIOLATION']);
    const history = await app.list<Person>('people', { find: { email: 'mail-3' }, include_history: true });
    expect(history.body.records).toEqual([many[3], many[3]]);
    expect(await rotate()).toMatchObject({ status: 'Completed', result: { documents: 452 } });
    expect(await versions()).toEqual([{ key: '3', count: 452n }]);
  });

  test('bulks with an encrypted field are stored and found', async () => {
    await encrypted();
    const many = Array.from({ length: 3_000 }, (_, n) => ({
      id: `${n}`,
      email: `mail-${n % 1_000}`,
      text: 'x'.repeat(60),
    }));
    await app.store('people', many);
    expect(await found({ email: 'mail-7' })).toEqual(['1007', '2007', '7']);
    expect((await stored()).join()).not.toContain('mail-');
  });

  test('a large collection is indexed while writes go on, and nothing of them is plain', async () => {
    await app.store(
      'people',
      Array.from({ length: 2_000 }, (_, n) => ({ id: `old-${n}`, text: 'x' })),
    );
    const made = await encrypt();
    expect(made.status).toBe(202);
    await app.store('people', [{ id: 'a', email: 'ann@example.com' }]);
    const { ticket_id: ticket } = made.body as { ticket_id?: string };
    expect((await app.ended(ticket!)).status).toBe('Completed');
    expect(await found({ email: 'ann@example.com' })).toEqual(['a']);
    expect((await stored()).join()).not.toContain('example.com');
  });
});
