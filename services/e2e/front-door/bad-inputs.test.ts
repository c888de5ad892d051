import { eventually } from '@granary/testing/eventually';
import { badInputs } from './bad-inputs/all';
import { placeholder, shop, type BadInput } from './bad-inputs/bad-input';
import { newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { expectProblem } from '../support/problem-shape';
import { closeConnections, sendRaw, type RawAnswer } from '../support/raw-http';

afterAll(closeConnections);

test('the table contains over 500 bad inputs, each once', () => {
  expect(badInputs.length).toBeGreaterThan(500);
  const inputs = badInputs.map(({ method, path, headers, body }) =>
    JSON.stringify([method, path, headers, body?.toString('latin1')]),
  );
  expect(inputs.filter((input, at) => inputs.indexOf(input) !== at)).toEqual([]);
});

describe.each(transports)('a bad input (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let blobId: string;

  beforeAll(async () => {
    granary = await startGranary(transport, { settings: { gateway: { MAX_BLOB_BYTES: '65536' } } });
    app = await newApp(granary, shop);
    blobId = await prepareShop(app);
  });
  afterAll(() => granary.stop());

  const ask = (input: BadInput): Promise<RawAnswer> => {
    const filled = (value: unknown) =>
      value === placeholder.key ? app.key : value === placeholder.operatorKey ? operatorKey : value;
    return sendRaw(granary.url, {
      method: input.method,
      path: input.path.replace(placeholder.blobId, blobId),
      headers: Object.fromEntries(
        Object.entries(input.headers).map(([name, value]) => [name, filled(value) as string]),
      ),
      ...(input.body === undefined ? {} : { body: input.body }),
    });
  };

  test.each(badInputs)('$what → $status $code', async (input) => {
    const answer = await ask(input);
    expect(`${answer.status} ${(answer.json as { code?: string } | undefined)?.code}`).toBe(
      `${input.status} ${input.code}`,
    );
    const problem = expectProblem(answer);
    if (input.says !== undefined) expect(JSON.stringify(problem)).toContain(input.says);
  });

  test('all bad inputs, sent concurrently, change nothing', async () => {
    const before = await stateOf(granary, app);
    const inputs = [...badInputs];
    const askAll = async () => {
      for (let input = inputs.pop(); input; input = inputs.pop()) {
        const { status } = await ask(input);
        expect({ what: input.what, status }).toEqual({ what: input.what, status: input.status });
      }
    };
    await Promise.all(Array.from({ length: 8 }, askAll));
    expect(await stateOf(granary, app)).toEqual(before);
  });
});

/** Creates the contents of the shop; returns the id of a blob of 5 bytes in the collection `files`. */
async function prepareShop(app: TestApp): Promise<string> {
  const path = `/api/apps/${shop}`;
  const made = async (method: string, target: string, body: object) => {
    const answer = await app.call<{ ticket_id?: string; blob_id?: string }>(method, target, body);
    if (answer.status >= 300) throw new Error(`${target}: ${answer.status} ${answer.text}`);
    return answer.body;
  };
  await made('POST', `${path}/collections`, {
    name: 'people',
    schema_definition: {
      fields: {
        name: { type: 'string', required: true },
        age: { type: 'number', validation: { max: 150 } },
        email: { type: 'string', unique: true },
        born: { type: 'date' },
      },
    },
  });
  await app.store('people', [{ id: '1', name: 'anna', email: 'anna@x' }]);
  await app.store('films', [
    { id: 'a', title: 'Alien', year: 1979 },
    { id: 'b', title: 'Clerks', year: 1994 },
    { id: 'c', title: 'Speed', year: 1994 },
  ]);
  await made('POST', `${path}/indexes`, {
    name: 'films_year',
    collection: 'films',
    field_name: 'year',
    index_type: 'number',
  });
  const view = await made('POST', `/apps/${shop}/views`, {
    name: 'by_year',
    query: { group_by: ['year'], aggregate: { n: { $count: '*' } } },
    source_collections: ['films'],
    variables: { year: 'year' },
  });
  await app.ended(view.ticket_id!);
  await made('POST', `/apps/${shop}/queries`, {
    name: 'of_year',
    source_collection: 'films',
    base_query: { find: {}, limit: 50 },
    parameters: [{ name: 'year', field_path: 'year', required: true }],
  });
  await made('POST', `${path}/payout/settings`, { locked_balance: 500 });
  const blob = await app.call<{ blob_id: string }>('POST', `${path}/blobs/files`, Buffer.from('bytes'), {
    'content-type': 'text/plain',
  });
  if (blob.status !== 202) throw new Error(`no blob: ${blob.status} ${blob.text}`);
  return blob.body.blob_id;
}

/** All readable state of an app. */
async function stateOf(granary: Granary, app: TestApp): Promise<unknown> {
  const own = ['stats', 'collections', 'indexes', 'keys', 'wallet', 'retention/cost', 'views', 'queries'];
  // Usage arrives by event, so poll until two reads are equal.
  let last = '';
  await eventually(async () => {
    const { text } = await app.call('GET', `/api/apps/${shop}/retention/cost`);
    const isSame = text === last;
    last = text;
    return isSame;
  });
  const reads = [
    ...own.map((path) => ['GET', `/api/apps/${shop}/${path}`, undefined] as const),
    ['GET', `/api/applications/${shop}`, undefined] as const,
    ['GET', '/api/applications', undefined] as const,
    ['GET', `/api/skills/${shop}/skills.md`, undefined] as const,
    ['GET', `/api/views/${shop}/by_year/data`, undefined] as const,
    ['POST', `/api/apps/${shop}/payout/info`, undefined] as const,
    ...['films', 'people', 'files'].map(
      (name) => ['POST', '/list', { root: `${shop}::${name}`, include_history: true, sort: ['id'] }] as const,
    ),
  ];
  const texts: Record<string, string> = {};
  for (const [method, path, body] of reads) {
    const headers = path === '/api/applications' ? { 'x-operator-key': operatorKey } : {};
    const { status, text } = await send(granary.url, method, path, { key: app.key, body, headers });
    texts[`${path} ${JSON.stringify(body)}`] = `${status} ${text}`;
  }
  return texts;
}
