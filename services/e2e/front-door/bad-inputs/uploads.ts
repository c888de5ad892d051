import { type BadInput, bad, app, filler } from './bad-input';

export function uploads(): BadInput[] {
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
    ...['', '; charset=utf-8'].map((more) =>
      bad(`the type of curl${more}`, target, 'bytes', 415, 'UNSUPPORTED_MEDIA_TYPE', {
        says: "-H 'Content-Type: image/png'",
        headers: { 'Content-Type': `application/x-www-form-urlencoded${more}` },
      }),
    ),
    ...[
      [
        part('file', 'bytes', '; filename="a.txt"'),
        'file is not a part of an upload: the file must be in a part called blob',
      ],
      [part('metadata', '{}'), 'must be in a part called blob, and the form has only the part metadata'],
    ].map(([text, says]) =>
      bad(`a form without blob: ${says}`, target, `${text}--b--\r\n\r\n`, 400, 'VALIDATION_FAILED', {
        says: says!,
        headers: { 'Content-Type': 'multipart/form-data; boundary=b' },
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
