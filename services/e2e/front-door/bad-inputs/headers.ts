import { type BadInput, bad, app, root, shop, placeholder } from './bad-input';

export function headers(): BadInput[] {
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
      `POST ${app}/payout/trigger`,
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
