import { type BadInput, bad, app, shop } from './bad-input';

const odd = ['toString=1', '__proto__=1', 'constructor=1', 'hasOwnProperty=1', 'undefined=1', '=1', 'a..b=1', '%00=1'];

export function queryStrings(): BadInput[] {
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
