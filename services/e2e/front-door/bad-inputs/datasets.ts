import { type BadInput, bad, app, filler, root } from './bad-input';

export function datasets(): BadInput[] {
  const put = `PUT ${app}/datasets/blocked`;
  const refused = (what: string, body: string | object, code = 'VALIDATION_FAILED') => bad(what, put, body, 400, code);
  const find = (operators: object) => ({ root, find: { title: operators } });
  const invalid = (operators: object) =>
    bad(JSON.stringify(operators), 'POST /list', find(operators), 400, 'INVALID_QUERY');
  return [
    refused('an array', []),
    refused('no values', {}),
    refused('values that are null', { values: null }),
    refused('an object among the values', { values: ['a', {}] }),
    refused('an array among the values', { values: [['a']] }),
    refused('an unknown member', { values: [], values2: [] }),
    refused('a number of 65 digits', `{"values":[${'1'.repeat(65)}]}`),
    refused('a lone surrogate', '{"values":["\\ud800"]}'),
    refused('half an array', '{"values":[1', 'MALFORMED_JSON'),
    bad('100,001 values', put, { values: Array(100_001).fill(0) }, 400, 'LIMIT_EXCEEDED', { says: '100000' }),
    bad('more than 5 MiB', put, { values: [filler(5 * 1024 * 1024)] }, 413, 'PAYLOAD_TOO_LARGE'),
    bad('a name outside the rule', `PUT ${app}/datasets/a%20b`, { values: [] }, 404, 'DATASET_NOT_FOUND'),
    bad('one that does not exist', `GET ${app}/datasets/nothing`, undefined, 404, 'DATASET_NOT_FOUND'),
    bad('one that does not exist', `DELETE ${app}/datasets/nothing`, undefined, 404, 'DATASET_NOT_FOUND'),
    bad('a cursor of nothing', `GET ${app}/datasets?cursor=x`, undefined, 400, 'INVALID_CURSOR'),
    ...[{ inDataset: 'nothing' }, { inDataset: 7 }, { CIDR: '10.0.0.0/33' }, { CIDR: 7 }, { cidr: [null] }].map(
      invalid,
    ),
    ...[{ isLocalIp: 'yes' }, { isExternalIp: null }, { inCountry: 'DE' }, { inCountry: 'x' }, { b64: '%' }].map(
      invalid,
    ),
  ];
}
