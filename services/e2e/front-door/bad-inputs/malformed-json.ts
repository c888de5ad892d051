import { type BadInput, bad, app, root, bytes, shop } from './bad-input';

/** Malformed bodies, and malformed JSON values inside a valid body. */
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
/** Well-formed JSON values that are refused. */
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

/** A place for a value in a body of each kind of reader. */
const holders: Array<[target: string, before: string, after: string]> = [
  ['POST /store', `{"root":"${root}","data":[{"id":"x","v":`, '}]}'],
  ['POST /list', `{"root":"${root}","find":{"title":{"is":`, '}}}'],
  [`POST ${app}/collections`, '{"name":"fresh","schema_definition":{"fields":{"f":{"default":', '}}}}'],
  [`POST ${app}/collections/films/validate`, '{"data":[{"v":', '}]}'],
];

const inside = (before: string, value: Buffer | string, after: string) =>
  Buffer.concat([Buffer.from(before), Buffer.from(value as string), Buffer.from(after)]);

export function malformedJson(): BadInput[] {
  const [store, list, create] = holders as [(typeof holders)[0], (typeof holders)[0], (typeof holders)[0]];
  return [
    ...malformedBodies.flatMap(([what, text]) =>
      [store, list, create].map(([target]) => bad(what, target, text, 400, 'MALFORMED_JSON')),
    ),
    ...malformedValues.flatMap(([what, value]) =>
      holders.map(([target, before, after]) => bad(what, target, inside(before, value, after), 400, 'MALFORMED_JSON')),
    ),
    ...refusedValues.flatMap(([what, value]) =>
      // The endpoint for validation reports such a document in its answer.
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
