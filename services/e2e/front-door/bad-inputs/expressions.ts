import { type BadInput, bad, app, root, shop } from './bad-input';

const refused: ReadonlyArray<readonly [string, string]> = [
  ['a(b', 'character 2'],
  ['a)b', 'character 2'],
  ['a**', 'character 3'],
  ['/a**/i', 'character 4'],
  ['+', 'nothing to repeat'],
  ['[a', 'not closed'],
  ['[b-a]', 'before it begins'],
  ['a\\', 'backslash'],
  ['(a)\\1', 'back-references'],
  ['(?=a)', 'look-ahead'],
  ['(?<!a)b', 'look-behind'],
  ['(?>a)', 'no such group'],
  ['(?i', 'no such group'],
  ['\\Z', 'no such escape'],
  ['\\x{110000}', 'beyond the last character'],
  ['\\p{Nothing}', 'not supported'],
  ['[[:nothing:]]', 'no class of this name'],
  ['a{1001}', '1000'],
  ['((a{100}){100}){100}', '1000'],
];

/** Each would take Postgres seconds or much memory, or match for long. */
const evil: ReadonlyArray<readonly [string, string]> = [
  ['a'.repeat(201), '200'],
  ['(((a{0,10}){0,10}){0,10})', '5000'],
  ['((((a?){0,9}){0,9}){0,9}){0,1}', '5000'],
  ['((a?b?c?d?e?f?g?h?){0,60})', '5000'],
  [Array.from({ length: 50 }, (_, n) => `${String.fromCodePoint(0x4e00 + n)}?.?`).join(''), '5000'],
  ['(?:\\ba?){1000}', '5000'],
  ['(?:\\B|[^x])(?:\\b|y)'.repeat(9), '5000'],
  ['(?:\\b|a)+'.repeat(4), '8'],
  ['\\pL'.repeat(20), '4000'],
];

export function expressions(): BadInput[] {
  const inFind = (expression: unknown) => ({ title: { $regex: expression } });
  const asText = (expression: string) => encodeURIComponent(expression);
  return [
    ...[1, null, true, ['a'], {}].map((operand) =>
      bad(`$regex ${JSON.stringify(operand)}`, 'POST /list', { root, find: inFind(operand) }, 400, 'INVALID_QUERY'),
    ),
    ...refused.map(([expression, says]) =>
      bad(`$regex ${expression}`, 'POST /list', { root, find: inFind(expression) }, 400, 'INVALID_QUERY', { says }),
    ),
    ...evil.map(([expression, says]) =>
      bad(
        `$regex ${expression.slice(0, 40)}`,
        'POST /list',
        { root, find: inFind(expression) },
        400,
        'LIMIT_EXCEEDED',
        {
          says,
        },
      ),
    ),
    bad(
      '17 regular expressions',
      'POST /list',
      { root, find: { or: Array.from({ length: 17 }, (_, n) => inFind(`${n}`)) } },
      400,
      'LIMIT_EXCEEDED',
      { says: '16' },
    ),
    bad(
      'regular expressions too complex together',
      'POST /list',
      { root, find: { or: Array.from({ length: 16 }, (_, n) => inFind(`${n}.{0,250}x`)) } },
      400,
      'LIMIT_EXCEEDED',
      { says: '20000' },
    ),
    bad(
      'a view with an expression that is none',
      `POST /apps/${shop}/views`,
      { name: 'v', query: { find: inFind('(') }, source_collections: ['films'] },
      400,
      'INVALID_QUERY',
    ),
    bad(
      'a query with an expression that is none',
      `POST /apps/${shop}/queries`,
      { name: 'q', source_collection: 'films', base_query: { find: inFind('(') } },
      400,
      'INVALID_QUERY',
    ),
    bad('?year.$regex=(', `GET ${app}/collections/films/data?year.$regex=(`, undefined, 400, 'INVALID_QUERY'),
    bad(
      '?year.$regex= with nested counts',
      `GET ${app}/collections/films/data?year.$regex=${asText('(((a{0,10}){0,10}){0,10})')}`,
      undefined,
      400,
      'LIMIT_EXCEEDED',
    ),
    bad(
      '?filter= with an expression that is none',
      `GET /api/views/${shop}/by_year/data?filter=${asText(JSON.stringify(inFind('[')))}`,
      undefined,
      400,
      'INVALID_QUERY',
    ),
  ];
}
