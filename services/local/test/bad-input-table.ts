import type { OutgoingHttpHeaders } from 'node:http';

export interface BadInput {
  what: string;
  method: string;
  path: string;
  headers: OutgoingHttpHeaders;
  body: Buffer | string | undefined;
  status: number;
  code: string;
  /** What the answer must name, such as the limit that was passed. */
  says: string | undefined;
}

/** The app that the table speaks of; see prepareShop for what is in it. */
export const shop = 'shop';
/** Stands for what is known only once the app is there. */
export const placeholder = { key: '{key}', operatorKey: '{operator}', blobId: '{blob}' };

type Body = Buffer | string | object | undefined;
interface More {
  headers?: OutgoingHttpHeaders;
  says?: string;
}

function bad(what: string, target: string, body: Body, status: number, code: string, more: More = {}): BadInput {
  const space = target.indexOf(' ');
  const isText = body === undefined || typeof body === 'string' || Buffer.isBuffer(body);
  return {
    what: `${target.slice(0, 90)}: ${what}`,
    method: target.slice(0, space),
    path: target.slice(space + 1),
    headers: {
      'X-App-Key': placeholder.key,
      'X-Operator-Key': placeholder.operatorKey,
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
      ...more.headers,
    },
    body: isText ? body : JSON.stringify(body),
    status,
    code,
    says: more.says,
  };
}

const app = `/api/apps/${shop}`;
const root = `${shop}::films`;
const bytes = (...parts: Array<string | number[]>) =>
  Buffer.concat(parts.map((part) => (typeof part === 'string' ? Buffer.from(part) : Buffer.from(part))));

/** Bodies that are no JSON, and JSON values that are none, inside a good body. */
const malformedBodies: Array<[string, Buffer | string]> = [
  ['one brace', '{'],
  ['half a body', '{"root":"shop::films","data":[{"a"'],
  ['white space only', ' \n\t '],
  ['a word', 'word'],
  ['single quotes', "{'root':'shop::films'}"],
  ['a comma too many', `{"root":"${root}","data":[{}],}`],
  ['no comma', `{"root":"${root}" "data":[{}]}`],
  ['no colon', `{"root" "${root}","data":[{}]}`],
  ['a key without quotes', `{root:"${root}","data":[{}]}`],
  ['text after the end', `{"root":"${root}","data":[{}]} true`],
  ['two bodies', `{"root":"${root}","data":[{}]}{"root":"${root}","data":[{}]}`],
  ['a comment', `{"root":"${root}",/* no */"data":[{}]}`],
  ['a byte-order mark', bytes([0xef, 0xbb, 0xbf], `{"root":"${root}","data":[{}]}`)],
  ['UTF-16', Buffer.from(`{"root":"${root}","data":[{}]}`, 'utf16le')],
  ['a non-breaking space', bytes('{', [0xc2, 0xa0], `"root":"${root}","data":[{}]}`)],
  ['a form feed as space', `{"root":"${root}",\f"data":[{}]}`],
  ['a raw NUL between tokens', bytes(`{"root":"${root}",`, [0], '"data":[{}]}')],
];
const malformedValues: Array<[string, Buffer | string]> = [
  ['NaN', 'NaN'],
  ['Infinity', '-Infinity'],
  ['undefined', 'undefined'],
  ['True', 'True'],
  ['a leading zero', '01'],
  ['a plus sign', '+1'],
  ['no digit before the dot', '.5'],
  ['no digit after the dot', '1.'],
  ['no exponent', '1e'],
  ['hexadecimal', '0x1F'],
  ['a lone minus', '-'],
  ['an unknown escape', '"\\x41"'],
  ['a cut escape', '"\\u12"'],
  ['an escape of no digits', '"\\u00zz"'],
  ['a raw line feed in a string', '"a\nb"'],
  ['a raw control character', '"\x01"'],
  ['an open string', '"abc'],
  ['an open array', '[1,2'],
  ['a trailing comma', '[1,2,]'],
  ['a hole', '[1,,2]'],
  ['an invalid byte', bytes('"', [0xff], '"')],
  ['a cut character', bytes('"', [0xc3], '"')],
  ['an overlong character', bytes('"', [0xc0, 0x80], '"')],
  ['a surrogate in UTF-8', bytes('"', [0xed, 0xa0, 0x80], '"')],
  ['a character beyond Unicode', bytes('"', [0xf4, 0x90, 0x80, 0x80], '"')],
];
/** Well-formed, but nothing that we take. */
const refusedValues: Array<[string, string]> = [
  ['an escaped NUL', '"\\u0000"'],
  ['a NUL in a key', '{"a\\u0000b":1}'],
  ['a lone high surrogate', '"\\ud800"'],
  ['a lone low surrogate', '"\\udc00x"'],
  ['a high surrogate twice', '"\\ud83d\\ud83d"'],
  ['surrogates the wrong way round', '"\\udc00\\ud800"'],
  ['a lone surrogate in a key', '{"\\uDBFF":1}'],
  ['a key twice', '{"a":1,"b":2,"a":1}'],
  ['a key twice, once escaped', '{"a":1,"\\u0061":2}'],
  ['a key twice, deep inside', '[[{"x":{"é":1,"\\u00e9":2}}]]'],
  ['a key __proto__', '{"__proto__":{"admin":true}}'],
  ['a key __proto__, escaped', '{"__pr\\u006fto__":1}'],
  ['1e999999', '1e999999'],
  ['-1e-999999', '-1e-999999'],
  ['an exponent of 309', '1e309'],
  ['a number of 65 digits', '1'.repeat(65)],
  ['65 digits around a dot', `${'1'.repeat(33)}.${'1'.repeat(32)}`],
  ['100,000 arrays in each other', '['.repeat(100_000) + ']'.repeat(100_000)],
  ['100,000 objects in each other', '{"":'.repeat(100_000) + '1' + '}'.repeat(100_000)],
];

/** One place for a value in the body of each of the readers that we have. */
const holders: Array<[target: string, before: string, after: string]> = [
  ['POST /store', `{"root":"${root}","data":[{"id":"x","v":`, '}]}'],
  ['POST /list', `{"root":"${root}","find":{"title":{"is":`, '}}}'],
  [`POST ${app}/collections`, '{"name":"fresh","schema_definition":{"fields":{"f":{"default":', '}}}}'],
  [`POST ${app}/collections/films/validate`, '{"data":[{"v":', '}]}'],
];

const inside = (before: string, value: Buffer | string, after: string) =>
  Buffer.concat([Buffer.from(before), Buffer.from(value as string), Buffer.from(after)]);

function json(): BadInput[] {
  const [store, list, create] = holders as [(typeof holders)[0], (typeof holders)[0], (typeof holders)[0]];
  return [
    ...malformedBodies.flatMap(([what, text]) =>
      [store, list, create].map(([target]) => bad(what, target, text, 400, 'MALFORMED_JSON')),
    ),
    ...malformedValues.flatMap(([what, value]) =>
      holders.map(([target, before, after]) => bad(what, target, inside(before, value, after), 400, 'MALFORMED_JSON')),
    ),
    ...refusedValues.flatMap(([what, value]) =>
      // Validating tells of such a document in its answer.
      [store, list, create].map(([target, before, after]) =>
        bad(what, target, inside(before, value, after), 400, 'VALIDATION_FAILED'),
      ),
    ),
    ...['POST /store', 'POST /list', `POST ${app}/collections`, `POST ${app}/indexes`, `POST /apps/${shop}/views`].map(
      (target) => bad('no body', target, undefined, 400, 'MALFORMED_JSON'),
    ),
    bad('an empty body', 'POST /store', '', 400, 'MALFORMED_JSON'),
    bad('the key root twice', 'POST /store', `{"root":"${root}","root":"${root}","data":[]}`, 400, 'VALIDATION_FAILED'),
    bad('__proto__ as a field', 'POST /list', `{"root":"${root}","__proto__":1}`, 400, 'VALIDATION_FAILED'),
    bad('constructor as a field', 'POST /list', { root, constructor: 1 }, 400, 'INVALID_QUERY'),
    bad('toString as a field', 'POST /store', { root, data: [{}], toString: 1 }, 400, 'VALIDATION_FAILED'),
    bad('toString as a field', `POST ${app}/collections`, { name: 'fresh', toString: 1 }, 400, 'VALIDATION_FAILED'),
  ];
}

/** Each field of a body with values that it cannot have; the rest of the body is good. */
function wrong(
  target: string,
  good: object,
  values: Record<string, unknown[]>,
  code = 'VALIDATION_FAILED',
): BadInput[] {
  return Object.entries(values).flatMap(([field, list]) =>
    list.map((value) => {
      const what = `${field} is ${value === undefined ? 'missing' : JSON.stringify(value).slice(0, 60)}`;
      return bad(what, target, { ...good, [field]: value }, 400, code);
    }),
  );
}

const notNames = ['', 'a b', '-a', 'ä', '../x', 'a.b', 'x'.repeat(64), 'a\n', 7, null, ['a'], {}];

function types(): BadInput[] {
  const noObjects = [1, 'x', true, [1]];
  const field = (rule: unknown) => ({ fields: { f: rule } });
  return [
    ...['[]', '"x"', '1', 'null', 'true'].flatMap((text) => [
      bad(`the body is ${text}`, 'POST /store', text, 400, 'VALIDATION_FAILED'),
      bad(`the body is ${text}`, 'POST /list', text, 400, 'INVALID_QUERY'),
      bad(`the body is ${text}`, `POST ${app}/collections`, text, 400, 'VALIDATION_FAILED'),
      bad(`the body is ${text}`, `POST ${app}/payout/settings`, text, 400, 'VALIDATION_FAILED'),
    ]),
    ...wrong(
      'POST /store',
      { root, data: [{}] },
      {
        root: [
          undefined,
          null,
          1,
          {},
          '',
          'films',
          'shop:films',
          'shop::',
          'shop::a b',
          'shop::a::b',
          `shop::${'x'.repeat(64)}`,
        ],
        data: [undefined, null, {}, 'x', 1, [1], ['x'], [null], [[]], [{}, 3]],
        extra: [1, null],
      },
    ),
    ...[true, {}, [], '', 'x'.repeat(257)].map((id) =>
      bad(
        `an id ${JSON.stringify(id).slice(0, 20)}`,
        'POST /store',
        { root, data: [{ id }] },
        400,
        'VALIDATION_FAILED',
      ),
    ),
    bad(
      'a document of depth 65',
      'POST /store',
      `{"root":"${root}","data":[{"a":${'['.repeat(64)}${']'.repeat(64)}}]}`,
      400,
      'VALIDATION_FAILED',
    ),
    ...wrong(
      'POST /list',
      { root },
      {
        root: [undefined, null, 1, 'films', []],
        find: noObjects,
        select: [1, true, [1], { a: 1 }, { a: true, b: false }, 'a..b', { 'a.-1': true }],
        limit: ['x', 1.5, -1, 0, true, {}],
        offset: ['x', -1, 0.5, []],
        sort: [1, {}, [1], ['a..b'], ['']],
        sortBy: [1, [], 'a..b'],
        sortDirection: ['up', 1],
        include_history: ['yes', 1],
        count: ['all', 1],
        extra: [1],
      },
      'INVALID_QUERY',
    ),
    ...(
      [
        { a: { $unknown: 1 } },
        { $where: 'true' },
        { is: 1 },
        { a: { is: 1, b: 2 } },
        { a: [1] },
        { a: { in: 1 } },
        { a: { notIn: {} } },
        { a: { isNull: 1 } },
        { a: { exists: 'true' } },
        { a: { gt: null } },
        { a: { lt: [] } },
        { a: { gte: {} } },
        { a: { between: 1 } },
        { a: { between: [1] } },
        { a: { between: { from: 1 } } },
        { a: { between: { from: 1, max: 2 } } },
        { a: { startsWith: 1 } },
        { and: {} },
        { or: [1] },
        { not: 'x' },
        { 'a..b': 1 },
        { '.a': 1 },
        { '': 1 },
        { 'a.-1': 1 },
        { 'a.$nope': 1 },
      ] as const
    ).map((find) => bad(`find ${JSON.stringify(find)}`, 'POST /list', { root, find }, 400, 'INVALID_QUERY')),
    ...wrong(
      `POST ${app}/collections`,
      { name: 'fresh' },
      {
        name: [undefined, ...notNames],
        namespace: [1, [], 'x'.repeat(201)],
        primary_column: [1, {}, 'x'.repeat(201)],
        sort_column: [true, 'x'.repeat(201)],
        schema_definition: [
          1,
          'x',
          [],
          { fields: [] },
          { fields: 'x' },
          { columns: {} },
          field('string'),
          field(null),
          field({}),
          field({ type: 'text' }),
          field({ type: 1 }),
          field({ type: 'string', index: 'yes' }),
          field({ type: 'string', unique: 1 }),
          field({ type: 'string', required: 'x' }),
          field({ type: 'string', size: 1 }),
          field({ type: 'number', default: 'x' }),
          field({ type: 'string', validation: [] }),
          field({ type: 'number', validation: { min: '1' } }),
          field({ type: 'string', validation: { pattern: '(' } }),
          field({ type: 'string', validation: { pattern: '(a)\\1' } }),
          field({ type: 'string', validation: { pattern: 'x'.repeat(201) } }),
          field({ type: 'string', validation: { enum: [] } }),
          field({ type: 'string', validation: { enum: 'a' } }),
          field({ type: 'string', validation: { size: 1 } }),
          { fields: { '': { type: 'string' } } },
          { fields: { 'a..b': { type: 'string' } } },
          { fields: { 'a.b': { type: 'string', default: 'x' } } },
        ],
        access_policy: ['private', {}, { read: 'nobody' }, { read: 1 }, { read: 'public', write: 'public' }],
        retention_days: [1],
      },
    ),
    ...wrong(
      `PUT ${app}/collections/films`,
      {},
      {
        name: ['other', 1],
        namespace: [1],
        schema_definition: [1, { fields: { f: { type: 'text' } } }],
        access_policy: [{ read: 'x' }],
        extra: [1],
      },
    ),
    ...wrong(`DELETE ${app}/collections/films`, {}, { force: ['yes', 1], cascade: ['x'], extra: [true] }),
    ...wrong(
      `POST ${app}/collections/films/retention`,
      {},
      { retention_days: [undefined, 0, -1, 1.5, 36_501, '30', true, []] },
    ),
    ...wrong(
      `POST ${app}/indexes`,
      { name: 'i', collection: 'films', field_name: 'f', index_type: 'btree' },
      {
        name: [undefined, '', 1, null, 'x'.repeat(201), 'a\u0007b', 'a\nb', '\u2028'],
        collection: [undefined, ...notNames.slice(0, 5)],
        field_name: [undefined, '', 1, [], 'a..b', '.a', 'a.-1', 'x'.repeat(501), Array(17).fill('a').join('.')],
        index_type: [undefined, 'b-tree', '', 1, null],
        fields: [[], 'f', [1], ['g']],
        unique_constraint: ['yes', 1],
        options: ['x', { unique: 1 }, { other: true }],
        store_values: [1],
        extra: [1],
      },
    ),
    ...wrong(
      `POST /apps/${shop}/views`,
      { name: 'v', query: {}, source_collections: ['films'] },
      {
        name: [undefined, ...notNames.slice(0, 6)],
        query: [undefined, null, 1, 'x', []],
        source_collections: [undefined, null, 'films', [], [1], ['a b']],
        refresh_mode: ['often', 1],
        variables: [1, [], { year: 1 }],
        access_policy: [{ read: 'x' }, 'private'],
        extra: [1],
      },
    ),
    ...(
      [
        { columns: 1 },
        { find: 1 },
        { find: {}, where: {} },
        { group_by: 1 },
        { group_by: [1] },
        { aggregate: 1 },
        { aggregate: { n: 1 } },
        { aggregate: { n: {} } },
        { aggregate: { n: { $sum: 'a', $avg: 'a' } } },
        { aggregate: { n: { $median: 'a' } } },
        { aggregate: { n: { $sum: 1 } } },
        { aggregate: { n: { $sum: '*' } } },
        { aggregate: { 'a.b': { $count: '*' } } },
        { aggregate: { $n: { $count: '*' } } },
        { group_by: ['n'], aggregate: { n: { $count: '*' } } },
        { group_by: ['year', 'year'] },
        { group_by: ['year'], sort_by: ['title'] },
        { sort_by: { year: 'up' } },
        { limit: 0 },
        { limit: 'x' },
        { base: 'other' },
        { base: 1 },
        { select: 1 },
      ] as const
    ).map((query) =>
      bad(
        `query ${JSON.stringify(query)}`,
        `POST /apps/${shop}/views`,
        { name: 'v', query, source_collections: ['films'] },
        400,
        'INVALID_QUERY',
      ),
    ),
    ...([{ limit: 'year' }, { filter: 'year' }, { '': 'year' }, { year: 'a..b' }, { year: 'a.$nope' }] as const).map(
      (variables) =>
        bad(
          `variables ${JSON.stringify(variables)}`,
          `POST /apps/${shop}/views`,
          { name: 'v', query: {}, source_collections: ['films'], variables },
          400,
          'INVALID_QUERY',
        ),
    ),
    ...wrong(
      `POST /apps/${shop}/queries`,
      { name: 'q', source_collection: 'films', base_query: {} },
      {
        name: [undefined, ...notNames.slice(0, 4)],
        source_collection: [undefined, 1, 'a b'],
        base_query: [undefined, null, 1, [], { joins: 1 }, { find: 1 }, { limit: -1 }, { limit: 1.5 }],
        parameters: [
          'x',
          [1],
          [{}],
          [{ name: 'p' }],
          [{ name: '', field_path: 'a' }],
          [{ name: 'p', field_path: 1 }],
          [{ name: 'p', field_path: 'a', type: 'x' }],
        ],
        description: [1],
        version: [{}],
        access_policy: [{ read: 1 }],
        extra: [1],
      },
    ),
    ...(
      [
        [{ base_query: { find: { a: { $nope: 1 } } } }, 'INVALID_QUERY'],
        [{ base_query: { sort: 1 } }, 'INVALID_QUERY'],
        [{ parameters: [{ name: 'limit', field_path: 'a' }] }, 'INVALID_QUERY'],
        [
          {
            parameters: [
              { name: 'p', field_path: 'a' },
              { name: 'p', field_path: 'b' },
            ],
          },
          'INVALID_QUERY',
        ],
        [{ parameters: [{ name: 'p', field_path: 'a..b' }] }, 'INVALID_QUERY'],
        [{ parameters: [{ name: 'p', field_path: 'a.$in', default: 5 }] }, 'INVALID_QUERY'],
      ] as const
    ).map(([part, code]) =>
      bad(
        JSON.stringify(part),
        `POST /apps/${shop}/queries`,
        { name: 'q', source_collection: 'films', base_query: {}, ...part },
        400,
        code,
      ),
    ),
    ...wrong(
      `POST ${app}/payout/settings`,
      {},
      {
        auto_payout_enabled: ['true', 1, []],
        locked_balance: [-1, 0.5, '1', 2 ** 53, true],
        min_payout: [-1, 1.5, '0'],
        payout_threshold: [-5, {}, 2 ** 60],
        payout_destination: [
          1,
          '',
          'celestia1',
          'x'.repeat(129),
          'celestia1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqpjnvf0',
          'cosmos1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqjsf7pe',
          '0x52908400098527886E0F7030069857D2E4169EE7',
        ],
        extra: [1],
      },
    ),
    ...wrong(
      `POST ${app}/payout/history`,
      {},
      { limit: [0, '1'], offset: [-1, 1_000_001], status: ['done', 1], extra: [1] },
    ),
    ...wrong(`POST ${app}/payout/info`, {}, { extra: [1] }),
    ...wrong(
      `POST ${app}/regenerate-key`,
      { permissions: ['Read'] },
      {
        name: ['', 1, 'x'.repeat(201)],
        permissions: [undefined, null, [], 'Read', ['read'], ['Root'], [1], { Read: true }],
        pay_limits: [
          1,
          { allowed_target_apps: 'x' },
          { allowed_target_apps: ['a b'] },
          { expires_at: 'tomorrow' },
          { max_payment_per_tx: -1 },
          { spend_allowance: '5' },
          { other: 1 },
        ],
        extra: [1],
      },
    ),
    ...wrong(
      'POST /api/applications',
      { name: 'x' },
      {
        app_id: ['', 'a b', '_a', '-a', 'ä', 'x'.repeat(64), 1],
        name: [undefined, null, '', 1, 'x'.repeat(201)],
        description: [1, 'x'.repeat(10_001)],
        owner_address: [1, '', 'x'.repeat(129)],
        extra: [1],
      },
    ),
    ...wrong(`PUT /api/skills/${shop}/skills.md`, {}, { markdown: [undefined, null, 1] }),
  ];
}

const limit = { says: '10000' };
const deepFind = (levels: number) => JSON.parse(`${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`) as object;
const manyConditions = (count: number) => ({ or: Array.from({ length: count }, (_, n) => ({ n })) });
const filler = (size: number) => 'x'.repeat(size);

function limits(): BadInput[] {
  const over = (what: string, target: string, body: Body, says: string) =>
    bad(what, target, body, 400, 'LIMIT_EXCEEDED', { says });
  const tooLarge = (target: string, size: number, type = 'application/json') =>
    bad(`a body of more than ${size} bytes`, target, `{"a":"${filler(size)}"}`, 413, 'PAYLOAD_TOO_LARGE', {
      says: String(size),
      headers: { 'Content-Type': type },
    });
  return [
    over('limit 10001', 'POST /list', { root, limit: 10_001 }, '10000'),
    over('offset 1000001', 'POST /list', { root, offset: 1_000_001 }, '1000000'),
    over('a find of depth 17', 'POST /list', { root, find: deepFind(17) }, '16'),
    over('257 conditions', 'POST /list', { root, find: manyConditions(257) }, '256'),
    over(
      '257 conditions in two lists',
      'POST /list',
      { root, find: { and: [manyConditions(200), manyConditions(57)] } },
      '256',
    ),
    over('1001 values', 'POST /list', { root, find: { a: { in: Array(1001).fill(1) } } }, '1000'),
    over('17 sort fields', 'POST /list', { root, sort: Array.from({ length: 17 }, (_, n) => `f${n}`) }, '16'),
    over('limit 10001', `GET ${app}/collections/films/data?limit=10001`, undefined, '10000'),
    over('offset 1000001', `GET ${app}/collections/films/data?offset=1000001`, undefined, '1000000'),
    over('limit 10001', `GET /api/views/${shop}/by_year/data?limit=10001`, undefined, '10000'),
    over(
      'a filter of depth 17',
      `GET /api/views/${shop}/by_year/data?filter=${encodeURIComponent(JSON.stringify(deepFind(17)))}`,
      undefined,
      '16',
    ),
    over('limit 10001', `GET /api/queries/${shop}/of_year/data?year=1994&limit=10001`, undefined, '10000'),
    over(
      'a limit beyond that of the query',
      `GET /api/queries/${shop}/of_year/data?year=1994&limit=51`,
      undefined,
      '50',
    ),
    over(
      'a view with a find of depth 17',
      `POST /apps/${shop}/views`,
      { name: 'v', query: { find: deepFind(17) }, source_collections: ['films'] },
      '16',
    ),
    over(
      'a query with 257 conditions',
      `POST /apps/${shop}/queries`,
      { name: 'q', source_collection: 'films', base_query: { find: manyConditions(257) } },
      '256',
    ),
    over('10,001 documents', 'POST /store', { root, data: Array(10_001).fill({}) }, '10000'),
    bad(
      'limit 10001',
      `GET /api/authz/transactions/app/${shop}?limit=10001`,
      undefined,
      400,
      'VALIDATION_FAILED',
      limit,
    ),
    bad('limit 10001', 'GET /api/applications?limit=10001', undefined, 400, 'VALIDATION_FAILED', limit),
    bad(
      'a document of more than 1 MiB',
      'POST /store',
      { root, data: [{ a: filler(1024 * 1024) }] },
      413,
      'DOCUMENT_TOO_LARGE',
      { says: '1048576' },
    ),
    tooLarge('POST /store', 5 * 1024 * 1024),
    tooLarge(`POST ${app}/collections/films/validate`, 5 * 1024 * 1024),
    tooLarge('POST /list', 512 * 1024),
    tooLarge(`POST ${app}/collections`, 512 * 1024),
    tooLarge(`POST ${app}/indexes`, 512 * 1024),
    tooLarge(`POST /apps/${shop}/views`, 512 * 1024),
    tooLarge(`POST /apps/${shop}/queries`, 512 * 1024),
    tooLarge(`POST ${app}/payout/settings`, 64 * 1024),
    tooLarge(`POST ${app}/regenerate-key`, 64 * 1024),
    tooLarge('POST /api/applications', 64 * 1024),
    tooLarge(`PUT /api/skills/${shop}/skills.md`, 256 * 1024, 'text/markdown'),
  ];
}

const odd = ['toString=1', '__proto__=1', 'constructor=1', 'hasOwnProperty=1', 'undefined=1', '=1', 'a..b=1', '%00=1'];

function queryStrings(): BadInput[] {
  const data = `GET ${app}/collections/films/data`;
  const view = `GET /api/views/${shop}/by_year/data`;
  const query = `GET /api/queries/${shop}/of_year/data`;
  const reads = [data, view, `${query}?year=1994`];
  const with_ = (target: string, more: string) => `${target}${target.includes('?') ? '&' : '?'}${more}`;
  return [
    ...odd.map((more) =>
      bad(`?${more}`, with_(data, more), undefined, 400, more === '%00=1' ? 'VALIDATION_FAILED' : 'FIELD_NOT_INDEXED'),
    ),
    ...odd.flatMap((more) => [
      bad(`?${more}`, with_(view, more), undefined, 400, 'VALIDATION_FAILED'),
      bad(`?${more}`, with_(`${query}?year=1994`, more), undefined, 400, 'VALIDATION_FAILED'),
      bad(`?${more}`, `GET /api/applications?${more}`, undefined, 400, 'VALIDATION_FAILED'),
      bad(`?${more}`, `GET /api/authz/transactions/app/${shop}?${more}`, undefined, 400, 'VALIDATION_FAILED'),
    ]),
    bad('?title=x, which is not indexed', `${data}?title=x`, undefined, 400, 'FIELD_NOT_INDEXED', { says: 'year' }),
    bad('?sort=title, which is not indexed', `${data}?sort=title`, undefined, 400, 'FIELD_NOT_INDEXED', {
      says: 'year',
    }),
    bad('?year=abc on a number', `${data}?year=abc`, undefined, 400, 'INVALID_QUERY'),
    bad('?year= on a number', `${data}?year=`, undefined, 400, 'INVALID_QUERY'),
    bad('?year.$nope=1', `${data}?year.$nope=1`, undefined, 400, 'INVALID_QUERY'),
    bad('?year.$between=1', `${data}?year.$between=1`, undefined, 400, 'INVALID_QUERY'),
    ...reads.flatMap((target) => [
      bad('limit=1&limit=1', with_(target, 'limit=1&limit=1'), undefined, 400, 'REPEATED_PARAMETER'),
      bad('limit=1&li%6Dit=1', with_(target, 'limit=1&li%6Dit=1'), undefined, 400, 'REPEATED_PARAMETER'),
      bad('a lone surrogate', with_(target, 'a=%ED%A0%80'), undefined, 400, 'MALFORMED_URL'),
      bad('%zz', with_(target, 'a=%zz'), undefined, 400, 'MALFORMED_URL'),
      bad('%', with_(target, 'a=%'), undefined, 400, 'MALFORMED_URL'),
      bad('%ff', with_(target, '%ff=1'), undefined, 400, 'MALFORMED_URL'),
      bad('a raw byte ff', with_(target, 'a=\xff'), undefined, 400, 'MALFORMED_REQUEST'),
      bad('%00', with_(target, 'limit=%00'), undefined, 400, 'VALIDATION_FAILED'),
      ...[
        'limit=0',
        'limit=-1',
        'limit=x',
        'limit=1.5',
        'limit=1e2',
        'limit=',
        'offset=-1',
        'offset=x',
        'count=all',
      ].map((more) => bad(`?${more}`, with_(target, more), undefined, 400, 'INVALID_QUERY')),
    ]),
    ...[
      'filter=x',
      'filter=[]',
      'filter=%7B',
      'filter=%7B%22a%22:1,%22a%22:2%7D',
      'filter=%7B%22__proto__%22:1%7D',
      'filter=%7B%22a%22:%7B%22$no%22:1%7D%7D',
      'filter=%7B%22a%22:1e999999%7D',
      'select=a..b',
      'sort=a..b',
      'sort=,',
    ].map((more) => bad(`?${more}`, with_(view, more), undefined, 400, 'INVALID_QUERY')),
    ...['select=a..b', 'sort=year,,year'].map((more) =>
      bad(`?${more}`, with_(data, more), undefined, 400, more.startsWith('sort') ? 'INVALID_QUERY' : 'INVALID_QUERY'),
    ),
    bad('a required parameter is missing', query, undefined, 400, 'VALIDATION_FAILED', { says: 'year' }),
    bad('an unknown parameter', `${query}?year=1994&genre=x`, undefined, 400, 'VALIDATION_FAILED', { says: 'genre' }),
    bad('a repeated parameter', `${query}?year=1994&year=1995`, undefined, 400, 'REPEATED_PARAMETER'),
    bad('force=maybe', `DELETE ${app}/collections/films?force=maybe`, undefined, 400, 'VALIDATION_FAILED'),
    bad('limit=x', 'GET /api/applications?limit=x', undefined, 400, 'VALIDATION_FAILED'),
    bad('offset=-1', `GET /api/authz/transactions/app/${shop}?offset=-1`, undefined, 400, 'VALIDATION_FAILED'),
    bad('an address that is none', 'GET /api/authz/transactions/nobody', undefined, 400, 'VALIDATION_FAILED'),
  ];
}

function paths(): BadInput[] {
  const at = (path: string, status: number, code: string, method = 'GET') =>
    bad(`${status}`, `${method} ${path}`, undefined, status, code);
  const oddNames = [
    'a%20b',
    '-a',
    '%C3%A4',
    'x'.repeat(64),
    '%00',
    'a%2Fb',
    '..%2F..%2Fetc%2Fpasswd',
    'a.b',
    '%27%3B--',
    'no_such',
  ];
  return [
    ...oddNames.flatMap((name) => [
      at(`${app}/collections/${name}/data`, 404, 'COLLECTION_NOT_FOUND'),
      at(`${app}/collections/${name}`, 404, 'COLLECTION_NOT_FOUND'),
      at(`/api/views/${shop}/${name}/data`, 404, 'VIEW_NOT_FOUND'),
      at(`/apps/${shop}/queries/${name}`, 404, 'QUERY_NOT_FOUND'),
      at(`/api/queries/${shop}/${name}/data`, 404, 'QUERY_NOT_FOUND'),
      at(`/api/skills/${name}/skills.md`, 404, 'APP_NOT_FOUND'),
      at(`/api/applications/${name}`, 404, 'APP_NOT_FOUND'),
      at(`${app}/blobs/files/${name}`, 404, 'BLOB_NOT_FOUND'),
      at(`/api/tasks/${name}`, 404, 'TASK_NOT_FOUND'),
      at(`${app}/keys/${name}`, 404, 'KEY_NOT_FOUND', 'DELETE'),
    ]),
    ...['toString', 'constructor', '__proto__', 'hasOwnProperty'].flatMap((name) => [
      at(`${app}/collections/${name}/data`, 404, 'COLLECTION_NOT_FOUND'),
      at(`/api/views/${shop}/${name}/data`, 404, 'VIEW_NOT_FOUND'),
    ]),
    at(`${app}/collections/${name63('n')}`, 404, 'COLLECTION_NOT_FOUND'),
    at(`${app}/collections/films/indexes/${'x'.repeat(201)}`, 404, 'INDEX_NOT_FOUND'),
    at(`${app}/collections/films/indexes/a%07b`, 404, 'INDEX_NOT_FOUND'),
    at(`${app}/collections/films/indexes/none/status`, 404, 'INDEX_NOT_FOUND'),
    at(`${app}/indexes/films_none_index`, 404, 'INDEX_NOT_FOUND', 'DELETE'),
    at(`${app}/blobs/none/${placeholder.blobId}`, 404, 'BLOB_NOT_FOUND'),
    ...[
      'c1-AAAAAAAAAAAAAAAAAAAA',
      'j1-AAAAAAAAAAAAAAAAAAAA',
      'c0-',
      'c-1-x',
      'C1-AAAAAAAAAAAAAAAAAAAA',
      'c99999999999999999999-AAAAAAAAAAAAAAAAAAAA',
      'x'.repeat(5000),
      "'%20or%201=1",
      'c1-AAAAAAAAAAAAAAAAAAA%00',
    ].flatMap((ticket) => [
      at(`/api/tasks/${ticket}`, 404, 'TASK_NOT_FOUND'),
      at(`/task/${ticket}`, 404, 'TASK_NOT_FOUND'),
    ]),
    ...['%zz', '%', '%ED%A0%80', '%ff'].map((name) => at(`${app}/collections/${name}/data`, 400, 'MALFORMED_URL')),
    at(`${app}/collections/\xff/data`, 400, 'MALFORMED_REQUEST'),
    ...[
      '/nothing',
      '/api',
      '/api/apps',
      `/api/apps/${shop}`,
      '/API/HEALTH',
      `/v1/apps/${shop}/collections`,
      '/api/api/health',
      '//health',
      '/store/x',
      '/.env',
      '/api/apps/shop/collections/films/data/x',
      '/api/skills/shop/../shop/x',
      '/..%2f..%2fetc/passwd',
    ].map((path) => at(path, 404, 'NOT_FOUND')),
    ...[
      'GET /store',
      'PUT /list',
      'DELETE /health',
      'POST /health',
      `PATCH ${app}/collections`,
      `POST ${app}/collections/films/data`,
      'DELETE /api/tasks/c1-AAAAAAAAAAAAAAAAAAAA',
      `PUT /apps/${shop}/views`,
      `POST ${app}/wallet`,
      `GET ${app}/payout/info`,
      `GET ${app}/regenerate-key`,
      `DELETE /api/skills/${shop}/skills.md`,
      'PROPFIND /store',
      'TRACE /health',
      'PURGE /',
    ].map((target) => bad('405', target, undefined, 405, 'METHOD_NOT_ALLOWED')),
    bad('a collection that is not there', 'POST /list', { root: `${shop}::none` }, 404, 'COLLECTION_NOT_FOUND'),
    bad(
      'a source that is not there',
      `POST /apps/${shop}/views`,
      { name: 'v', query: {}, source_collections: ['none'] },
      404,
      'COLLECTION_NOT_FOUND',
    ),
    bad(
      'a source that is not there',
      `POST /apps/${shop}/queries`,
      { name: 'q', source_collection: 'none', base_query: {} },
      404,
      'COLLECTION_NOT_FOUND',
    ),
    bad('a view that is not there', `POST /apps/${shop}/views/none/refresh`, undefined, 404, 'VIEW_NOT_FOUND'),
    bad('a view that is not there', `DELETE /apps/${shop}/views/none`, undefined, 404, 'VIEW_NOT_FOUND'),
    bad('a query that is not there', `DELETE /apps/${shop}/queries/none`, undefined, 404, 'QUERY_NOT_FOUND'),
    bad('an app that is not there', 'DELETE /api/applications/none', undefined, 404, 'APP_NOT_FOUND'),
  ];
}

const name63 = (letter: string) => letter.repeat(63);

function headers(): BadInput[] {
  const good = { root, data: [{}] };
  const typed = (type: string, target = 'POST /store') =>
    bad(`Content-Type ${type}`, target, good, 415, 'UNSUPPORTED_MEDIA_TYPE', { headers: { 'Content-Type': type } });
  const keyed = (key: string | string[], what: string) =>
    bad(what, 'POST /store', good, 400, 'VALIDATION_FAILED', { headers: { 'Idempotency-Key': key } });
  return [
    ...[
      'text/plain',
      'application/xml',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'application/octet-stream',
      'application/json; charset=latin1',
      'application/json; charset=utf-16',
      'json',
      'application/jsonx',
      'text/json',
      ';',
    ].map((type) => typed(type)),
    ...[
      'POST /list',
      `POST ${app}/collections`,
      `POST ${app}/indexes`,
      `POST /apps/${shop}/views`,
      `POST /apps/${shop}/queries`,
      `POST ${app}/payout/settings`,
      `POST ${app}/payout/info`,
      `POST ${app}/regenerate-key`,
      'POST /api/applications',
    ].map((target) => typed('text/plain', target)),
    typed('application/xml', `PUT /api/skills/${shop}/skills.md`),
    ...['gzip', 'br', 'deflate', 'gzip, identity'].map((encoding) =>
      bad(`Content-Encoding ${encoding}`, 'POST /store', good, 415, 'UNSUPPORTED_MEDIA_TYPE', {
        headers: { 'Content-Encoding': encoding },
      }),
    ),
    bad('Content-Encoding gzip', `POST ${app}/blobs/files`, 'x', 415, 'UNSUPPORTED_MEDIA_TYPE', {
      headers: { 'Content-Type': 'image/png', 'Content-Encoding': 'gzip' },
    }),
    keyed('', 'an empty Idempotency-Key'),
    keyed('a b', 'an Idempotency-Key with a space'),
    keyed('x'.repeat(256), 'an Idempotency-Key of 256 characters'),
    keyed('sch\xf6n', 'an Idempotency-Key beyond ASCII'),
    keyed(['a', 'b'], 'two Idempotency-Keys'),
    bad('a bad Idempotency-Key', 'POST /api/applications', { name: 'x' }, 400, 'VALIDATION_FAILED', {
      headers: { 'Idempotency-Key': 'a b' },
    }),
    bad('a bad Idempotency-Key', `POST ${app}/blobs/files`, 'x', 400, 'VALIDATION_FAILED', {
      headers: { 'Content-Type': 'image/png', 'Idempotency-Key': 'a b' },
    }),
    ...['bytes=5-', 'bytes=99999-', 'bytes=5-6', 'bytes=-0'].map((range) =>
      bad(
        `Range ${range} of 5 bytes`,
        `GET ${app}/blobs/files/${placeholder.blobId}`,
        undefined,
        416,
        'RANGE_NOT_SATISFIABLE',
        { headers: { Range: range } },
      ),
    ),
    bad('If-Match of another', `GET ${app}/blobs/files/${placeholder.blobId}`, undefined, 412, 'PRECONDITION_FAILED', {
      headers: { 'If-Match': '"other"' },
    }),
    bad('two different keys', 'POST /store', good, 401, 'UNAUTHENTICATED', { headers: { 'X-API-Key': 'app_other' } }),
    bad('the header twice', 'POST /store', good, 401, 'UNAUTHENTICATED', {
      headers: { 'X-App-Key': ['app_a', 'app_b'] },
    }),
  ];
}

function uploads(): BadInput[] {
  const target = `POST ${app}/blobs/files`;
  const form = (text: string, type = 'multipart/form-data; boundary=b') => ({
    text,
    headers: { 'Content-Type': type },
  });
  const part = (name: string, value: string, more = '') =>
    `--b\r\nContent-Disposition: form-data; name="${name}"${more}\r\n\r\n${value}\r\n`;
  const blob = part('blob', 'bytes', '; filename="a.txt"');
  const forms: Array<[string, ReturnType<typeof form>]> = [
    ['no boundary', form(`${blob}--b--\r\n`, 'multipart/form-data')],
    ['another boundary', form(`${blob}--b--\r\n`, 'multipart/form-data; boundary=other')],
    ['an open end', form(blob)],
    ['no parts', form('--b--\r\n')],
    ['nothing but text', form('hello')],
    ['no part blob', form(`${part('metadata', '{}')}--b--\r\n`)],
    ['two blobs', form(`${blob}${blob}--b--\r\n`)],
    ['a part that does not belong there', form(`${blob}${part('other', 'x')}--b--\r\n`)],
    ...['x', '[]', '1', '{"a":1,"a":2}', '{"__proto__":1}', '{"a":"\\u0000"}', '{"a":1e999999}', '{"a":'].map(
      (text): [string, ReturnType<typeof form>] => [
        `metadata ${text}`,
        form(`${blob}${part('metadata', text)}--b--\r\n`),
      ],
    ),
  ];
  return [
    ...forms.map(([what, { text, headers: given }]) =>
      bad(what, target, text, 400, 'VALIDATION_FAILED', { headers: given }),
    ),
    ...['x', '[]', '{"a":1,"a":1}', '{"a":'].map((text) =>
      bad(`X-Blob-Metadata ${text}`, target, 'bytes', 400, 'VALIDATION_FAILED', {
        headers: { 'Content-Type': 'image/png', 'X-Blob-Metadata': text },
      }),
    ),
    bad('neither a body nor a type', target, undefined, 400, 'VALIDATION_FAILED'),
    bad('a blob over the limit', target, filler(200_001), 413, 'PAYLOAD_TOO_LARGE', {
      says: '65536',
      headers: { 'Content-Type': 'image/png' },
    }),
    bad('a blob over the limit by one', target, filler(65_537), 413, 'PAYLOAD_TOO_LARGE', {
      says: '65536',
      headers: { 'Content-Type': 'image/png' },
    }),
    bad('a name outside the rule', `POST ${app}/blobs/a%20b`, 'x', 404, 'COLLECTION_NOT_FOUND', {
      headers: { 'Content-Type': 'image/png' },
    }),
    bad('a metadata document against the schema', `POST ${app}/blobs/people`, 'x', 422, 'SCHEMA_VIOLATION', {
      headers: { 'Content-Type': 'image/png' },
    }),
  ];
}

function conflicts(): BadInput[] {
  const people = `${shop}::people`;
  const person = { name: 'anna', email: 'anna@x' };
  return [
    bad('a name in use', `POST ${app}/collections`, { name: 'films' }, 409, 'ALREADY_EXISTS', {
      says: 'already exists',
    }),
    bad('the name of a view', `POST ${app}/collections`, { name: 'by_year' }, 409, 'ALREADY_EXISTS'),
    bad(
      'the name of a view',
      `POST /apps/${shop}/views`,
      { name: 'by_year', query: {}, source_collections: ['films'] },
      409,
      'ALREADY_EXISTS',
      { says: 'already exists' },
    ),
    bad(
      'the name of a collection',
      `POST /apps/${shop}/views`,
      { name: 'films', query: {}, source_collections: ['films'] },
      409,
      'ALREADY_EXISTS',
      { says: 'already exists' },
    ),
    bad(
      'the name of a query',
      `POST /apps/${shop}/queries`,
      { name: 'of_year', source_collection: 'films', base_query: {} },
      409,
      'ALREADY_EXISTS',
    ),
    bad('an app id in use', 'POST /api/applications', { app_id: shop, name: 'x' }, 409, 'ALREADY_EXISTS'),
    bad(
      'another type',
      `POST ${app}/indexes`,
      { name: 'films_year', collection: 'films', field_name: 'year', index_type: 'string' },
      409,
      'ALREADY_EXISTS',
    ),
    bad(
      'another field',
      `POST ${app}/indexes`,
      { name: 'films_year', collection: 'films', field_name: 'title', index_type: 'number' },
      409,
      'ALREADY_EXISTS',
    ),
    bad(
      'duplicates under a unique index',
      `POST ${app}/indexes`,
      { name: 'u', collection: 'films', field_name: 'year', index_type: 'number', options: { unique: true } },
      409,
      'UNIQUE_VIOLATION',
    ),
    bad('documents in it', `DELETE ${app}/collections/people`, undefined, 409, 'COLLECTION_NOT_EMPTY'),
    bad(
      'a view and a query read it',
      `DELETE ${app}/collections/films?force=true`,
      undefined,
      409,
      'COLLECTION_IN_USE',
    ),
    bad('a taken value', 'POST /store', { root: people, data: [person] }, 409, 'UNIQUE_VIOLATION', {
      says: 'data[0].email',
    }),
    bad(
      'a value twice in one call',
      'POST /store',
      {
        root: people,
        data: [
          { ...person, email: 'b@x' },
          { ...person, email: 'b@x' },
        ],
      },
      409,
      'UNIQUE_VIOLATION',
      { says: 'data[1].email' },
    ),
    bad(
      'a required field is missing',
      'POST /store',
      { root: people, data: [{ email: 'c@x' }] },
      422,
      'SCHEMA_VIOLATION',
      { says: 'data[0].name' },
    ),
    bad('a wrong type', 'POST /store', { root: people, data: [{ name: 7 }] }, 422, 'SCHEMA_VIOLATION', {
      says: 'data[0].name',
    }),
    bad(
      'beyond the maximum',
      'POST /store',
      { root: people, data: [{ name: 'a', age: 151 }] },
      422,
      'SCHEMA_VIOLATION',
      { says: '150' },
    ),
    bad(
      'a day that is none',
      'POST /store',
      { root: people, data: [{ name: 'a', born: '2023-02-29T00:00:00Z' }] },
      422,
      'SCHEMA_VIOLATION',
      { says: 'data[0].born' },
    ),
    bad(
      'a lower locked balance',
      `POST ${app}/payout/settings`,
      { locked_balance: 499, min_payout: 77 },
      409,
      'LOCKED_BALANCE_DECREASE',
    ),
  ];
}

export const badInputs: readonly BadInput[] = [
  ...json(),
  ...types(),
  ...limits(),
  ...queryStrings(),
  ...paths(),
  ...headers(),
  ...uploads(),
  ...conflicts(),
];
