import { type BadInput, type Body, bad, app, root, shop, limit, deepFind, manyConditions, filler } from './bad-input';

export function limits(): BadInput[] {
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
    tooLarge(`POST ${app}/payout/trigger`, 64 * 1024),
    tooLarge(`POST ${app}/keys`, 64 * 1024),
    tooLarge(`POST ${app}/regenerate-key`, 64 * 1024),
    tooLarge('POST /api/applications', 64 * 1024),
    tooLarge(`PUT /api/skills/${shop}/skills.md`, 256 * 1024, 'text/markdown'),
  ];
}
