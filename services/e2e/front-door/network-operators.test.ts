import { join } from 'node:path';
import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';

const ips: Record<string, unknown> = {
  private: '10.1.2.3',
  mapped: '::ffff:10.9.9.9',
  german: '192.0.2.7',
  french: '::ffff:c633:6407',
  canadian: '203.0.113.70',
  japanese: '2001:db8::8',
  linkLocal: 'fe80::1',
  zone: 'fe80::1%eth0',
  prefix: '10.0.0.0/8',
  zeros: '010.0.0.1',
  port: '192.0.2.7:80',
  text: 'localhost',
  number: 167837955,
  list: ['10.1.2.3'],
  null: null,
};
const none = Object.keys(ips).slice(7);
const external = ['canadian', 'french', 'german', 'japanese'];
const local = ['linkLocal', 'mapped', 'private'];

describe.each(transports)('operators on addresses (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    const data = { COUNTRY_NETWORKS_FILE: join(__dirname, '../support/networks.csv') };
    granary = await startGranary(transport, { settings: { data } });
    app = await newApp(granary);
    for (const name of ['plain', 'keyed']) {
      await app.store(
        name,
        Object.entries(ips).map(([id, ip]) => ({ id, ip, net: { ip }, name: id })),
      );
    }
    await app.store('keyed', [{ id: 'missing' }]);
    await app.store('plain', [{ id: 'missing' }]);
    for (const field_name of ['ip', 'net.ip', 'name']) {
      const definition = { name: `by_${field_name}`, collection: 'keyed', field_name, index_type: 'btree' };
      const made = await app.call('POST', `/api/apps/${app.appId}/indexes`, definition);
      // An index over a few documents is there at once.
      expect([made.status, made.body['status']]).toEqual([201, 'ready']);
    }
  });
  afterAll(() => granary.stop());

  const idsOf = (records: ReadonlyArray<Record<string, unknown>>) => records.map(({ id }) => id as string).sort();
  async function found(find: object): Promise<string[]> {
    const answers = await Promise.all(['plain', 'keyed'].map((name) => app.list(name, { find })));
    for (const answer of answers) expect([answer.status, answer.text.slice(0, 300)]).toEqual([200, expect.anything()]);
    const [plain, keyed] = answers.map(({ body }) => idsOf(body.records));
    expect(keyed).toEqual(plain);
    return plain!;
  }

  test.each<[object, string[]]>([
    [{ CIDR: '10.0.0.0/8' }, ['mapped', 'private']],
    [{ cidr: ['10.1.2.3', '::ffff:192.0.2.0/120', 'fe80::/10'] }, ['german', 'linkLocal', 'private']],
    [{ CIDR: '0.0.0.0/0' }, ['canadian', 'french', 'german', 'mapped', 'private']],
    [{ CIDR: '::/0' }, ['japanese', 'linkLocal']],
    [{ CIDR: [] }, []],
    [{ isLocalIp: true }, local],
    [{ isLocalIp: false }, external],
    [{ isExternalIp: true }, external],
    [{ isExternalIp: false }, local],
    [{ inCountry: 'DE' }, ['german']],
    [{ inCountry: ['fr', 'CA', 'JP', 'US'] }, ['canadian', 'french', 'japanese']],
    [{ inCountry: 'ZZ' }, []],
    [{ b64: Buffer.from('localhost').toString('base64') }, ['text']],
  ])('%j finds %j, with and without an index, by every spelling of the path', async (operators, expected) => {
    expect(await found({ ip: operators })).toEqual(expected);
    expect(await found({ net: { ip: operators } })).toEqual(expected);
    const [name, operand] = Object.entries(operators)[0] as [string, unknown];
    expect(await found({ [`net.ip.$${name}`]: operand })).toEqual(expected);
    const others = [...Object.keys(ips), 'missing'].filter((id) => !expected.includes(id)).sort();
    expect(await found({ not: [{ ip: operators }] })).toEqual(others);
    expect(await found({ ip: operators, or: [{ ip: { isLocalIp: true } }, { ip: { isExternalIp: true } }] })).toEqual(
      expected.filter((id) => !none.includes(id)),
    );
  });

  const read = async (path: string, query: Record<string, string>) => {
    const answer = await send<{ records: Array<Record<string, unknown>> }>(
      granary.url,
      'GET',
      `${path}?${new URLSearchParams(query).toString()}`,
    );
    expect([answer.status, answer.text.slice(0, 300)]).toEqual([200, expect.anything()]);
    return idsOf(answer.body.records);
  };

  test('every operator is a suffix in the URL of endpoint 3', async () => {
    const data = `/api/apps/${app.appId}/collections/keyed/data`;
    const ids = (query: Record<string, string>) => read(data, query);
    expect(await ids({ 'ip.$CIDR': '10.0.0.0/8,192.0.2.0/24' })).toEqual(['german', 'mapped', 'private']);
    expect(await ids({ 'ip.$isLocalIp': 'true' })).toEqual(local);
    expect(await ids({ 'ip.$isExternalIp': 'true', 'ip.$inCountry': 'DE,JP' })).toEqual(['german', 'japanese']);
    expect(await ids({ 'ip.$b64': 'bG9jYWxob3N0' })).toEqual(['text']);
    expect(await ids({ 'ip.$isNull': 'true' })).toEqual(['missing', 'null']);
    expect(await ids({ 'ip.$isNotNull': 'false' })).toEqual(['missing', 'null']);
    expect(await ids({ 'ip.$exists': 'false' })).toEqual(['missing']);
    expect(await ids({ 'name.$startsWith': 'pri' })).toEqual(['private']);
    expect(await ids({ 'name.$endsWith': 'ese' })).toEqual(['japanese']);
    expect(await ids({ 'name.$includesCaseInsensitive': 'NCH' })).toEqual(['french']);
    expect(await ids({ 'name.$startsWithCaseInsensitive': 'Z' })).toEqual(['zeros', 'zone']);
    expect(await ids({ 'name.$endsWithCaseInsensitive': 'ESE' })).toEqual(['japanese']);
    expect(await ids({ 'name.$is': 'list' })).toEqual(['list']);
    expect(await ids({ 'name.$notIn': Object.keys(ips).slice(1).join() })).toEqual(['private']);
    expect(await ids({ 'name.$greaterThanOrEqual': 'zeros' })).toEqual(['zeros', 'zone']);
    expect(await ids({ 'name.$betweenOp': 'n,p' })).toEqual(['null', 'number']);
  });

  test('and in variables of views, parameters of predefined queries, and their definitions', async () => {
    const view = {
      name: 'visits',
      source_collections: ['plain'],
      query: { find: { 'ip.$isExternalIp': true } },
      variables: { net: 'ip.$CIDR', name: 'name.$startsWith', country: 'ip.$inCountry' },
    };
    const made = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, view);
    expect(await app.ended(made.body.ticket_id)).toMatchObject({ status: 'Completed' });
    const ofView = `/api/views/${app.appId}/visits/data`;
    expect(await read(ofView, {})).toEqual(external);
    expect(await read(ofView, { net: '2001:db8::/32,203.0.113.0/24' })).toEqual(['canadian', 'japanese']);
    expect(await read(ofView, { country: 'CA,FR', name: 'f' })).toEqual(['french']);
    expect(await read(ofView, { filter: '{"ip":{"inCountry":"JP"}}' })).toEqual(['japanese']);

    const query = {
      name: 'visitors',
      source_collection: 'keyed',
      base_query: { find: { ip: { isLocalIp: false } } },
      parameters: [
        { name: 'from', field_path: 'ip.$inCountry', default: ['DE', 'FR'] },
        { name: 'not', field_path: 'name.$isNot' },
      ],
    };
    expect((await app.call('POST', `/apps/${app.appId}/queries`, query)).status).toBe(201);
    const ofQuery = `/api/queries/${app.appId}/visitors/data`;
    expect(await read(ofQuery, {})).toEqual(['french', 'german']);
    expect(await read(ofQuery, { from: 'DE,JP', not: 'german' })).toEqual(['japanese']);
  });

  test.each<[object, string]>([
    [{ CIDR: '10.0.0.0/33' }, '10.0.0.0/8'],
    [{ CIDR: '010.0.0.0/8' }, 'networks'],
    [{ CIDR: 'fe80::1%eth0' }, 'networks'],
    [{ CIDR: ['10.0.0.0/8', 7] }, 'string'],
    [{ CIDR: null }, 'string'],
    [{ CIDR: { from: '10.0.0.0' } }, 'string'],
    [{ isLocalIp: 1 }, 'true or false'],
    [{ isExternalIp: 'true' }, 'true or false'],
    [{ inCountry: 'DEU' }, 'ISO 3166-1'],
    [{ inCountry: [''] }, 'ISO 3166-1'],
    [{ inCountry: 49 }, 'string'],
    [{ b64: 'a' }, 'base64'],
    [{ b64: 'aGk=aGk=' }, 'base64'],
    [{ b64: 'aGl=' }, 'base64'],
    [{ b64: ' aGk=' }, 'base64'],
    [{ b64: '/w==' }, 'UTF-8'],
    [{ b64: 'AA==' }, 'U+0000'],
    [{ b64: 7 }, 'string'],
    [{ inDataset: 'nothing' }, 'data set'],
    [{ inDataset: 'no name' }, 'name'],
    [{ inDataset: ['a'] }, 'string'],
  ])('%j is refused with 400 that says %j', async (operators, says) => {
    const refused = await app.list('plain', { find: { ip: operators } });
    expect([refused.status, (refused.body as unknown as { code: string }).code]).toEqual([400, 'INVALID_QUERY']);
    expect(refused.text).toContain(says);
  });

  test('more than 1,000 networks or countries are refused, and the limit is named', async () => {
    for (const operators of [{ CIDR: Array(1_001).fill('::1') }, { inCountry: Array(1_001).fill('DE') }]) {
      const refused = await app.list('plain', { find: { ip: operators } });
      expect([refused.status, refused.body]).toMatchObject([400, { code: 'LIMIT_EXCEEDED' }]);
      expect(refused.text).toContain('1000');
    }
    expect((await app.list('plain', { find: { ip: { CIDR: Array(1_000).fill('10.0.0.0/8') } } })).body.total).toBe(2);
  });
});

describe.each(transports)('without a file of networks (%s)', (transport) => {
  test('inCountry is refused in every entrance, with how to supply one', async () => {
    const granary = await borrowGranary(transport);
    try {
      const app = await newApp(granary);
      await app.store('c', [{ ip: '192.0.2.7' }]);
      const find = { or: [{ ip: { inCountry: 'DE' } }] };
      const refused = [
        await app.list('c', { find }),
        await app.call('POST', `/apps/${app.appId}/views`, { name: 'v', source_collections: ['c'], query: { find } }),
        await app.call('POST', `/apps/${app.appId}/queries`, {
          name: 'q',
          source_collection: 'c',
          base_query: { find },
        }),
      ];
      for (const { status, text } of refused) {
        expect([status, text]).toEqual([400, expect.stringContaining('COUNTRY_NETWORKS_FILE')]);
      }
    } finally {
      await granary.stop();
    }
  });
});
