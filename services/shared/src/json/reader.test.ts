import fc from 'fast-check';
import { checkProperty } from '@granary/testing/properties';
import { JsonError } from './error';
import { JsonReader } from './reader';
import { JsonNumber, readJson, toPlain, toText } from './value';

function errorOf(action: () => unknown): JsonError {
  try {
    action();
  } catch (error) {
    if (error instanceof JsonError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}

function refusal(text: string | Buffer, maxDepth = 64): JsonError {
  return errorOf(() => readJson(Buffer.from(text as string), { maxDepth }));
}

function plain(text: string, maxDepth = 64): unknown {
  return toPlain(readJson(Buffer.from(text), { maxDepth }));
}

const accepted = [
  'null',
  ' \t\r\n{ "a" : [ 1 , -0 , true , false , null ] }\n',
  '""',
  '[]',
  '{}',
  '[[],{}]',
  '"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00"',
  '"é€😀\u007f\u0085\ufffe"',
  '0',
  '-0.0e-0',
  '1E+308',
  '9.99e308',
  '1e-308',
  '0e308',
  '0.0000001e300',
  '1e000000000000000000000000308',
  '1'.repeat(64),
  `0.${'1'.repeat(63)}`,
  '{"":1,"a":{"a":{"a":1}}}',
  '{"__proto":1,"__proto___":2,"constructor":3,"toString":4}',
  '["__proto__"]',
];

test.each(accepted)('%s is read as JSON.parse reads it', (text) => {
  expect(plain(text)).toEqual(JSON.parse(text));
});

const refused: [JsonError['reason'], string[]][] = [
  [
    'MALFORMED',
    [
      '',
      ' ',
      'nul',
      'nulll',
      'True',
      'truefalse',
      'undefined',
      'NaN',
      '-Infinity',
      "'a'",
      '/**/1',
      '1 2',
      '{}{}',
      '[',
      '[1',
      '[1,',
      '[1,]',
      '[,1]',
      '[1 2]',
      ']',
      '[1}',
      '{',
      '{"a"',
      '{"a":',
      '{"a":1',
      '{"a":1,}',
      '{,}',
      '{"a" 1}',
      '{"a":1 "b":2}',
      '{a:1}',
      '{1:1}',
      '{"a"::1}',
      '}',
      '{]',
      '{"a":1]',
      '{"a":}',
      '[:]',
      '01',
      '-',
      '-01',
      '+1',
      '.5',
      '1.',
      '1.e1',
      '1e',
      '1e+',
      '1e1.5',
      '0x10',
      '1_000',
      '00',
      '--1',
      '1a',
      '"',
      '"a',
      '"\\',
      '"\\x"',
      '"\\u12"',
      '"\\u12',
      '"\\u123g"',
      '"\\U0041"',
      '"a\nb"',
      '"\t"',
      '"\u001f"',
      '\u00a0null',
      '\u000bnull',
      '\u2028null',
      '\u0000',
      '{"a":1}\u0000',
      '"\\ud83d\\uzzzz"',
      '[1]\ufeff',
    ],
  ],
  ['NUL_CHARACTER', ['"\\u0000"', '{"a\\u0000":1}', '"\u0000"', '["a","b\\u0000"]']],
  ['LONE_SURROGATE', ['"\\ud83d"', '"\\ude00"', '"\\ud83d\\ud83d"', '"\\ud83dx"', '"\\ud83d\\n"', '{"\\uDfff":1}']],
  ['DUPLICATE_KEY', ['{"a":1,"a":1}', '{"a":1,"\\u0061":1}', '[{"b":{"":1,"":2}}]', '{"\\u0061":1,"b":2,"a":1}']],
  ['FORBIDDEN_KEY', ['{"__proto__":1}', '[{"a":{"__prot\\u006f__":{}}}]']],
  [
    'NUMBER_OUT_OF_RANGE',
    [
      '1e309',
      '1e-309',
      '0e309',
      '1e99999999999999999999',
      '10e308',
      '123456e304',
      '0.1e-308',
      '0.00001e-305',
      '1'.repeat(65),
      `-0.${'1'.repeat(64)}`,
      '0'.padEnd(66, '.0'.repeat(1)).slice(0, 2) + '0'.repeat(64),
    ],
  ],
  ['BYTE_ORDER_MARK', ['\ufeff{}']],
];

test.each(refused)('%s is the reason where it is the rule that is broken', (reason, texts) => {
  expect(texts.map((text) => [text, refusal(text).reason])).toEqual(texts.map((text) => [text, reason]));
});

test('bytes that are not UTF-8 are refused, raw surrogates and overlong forms too', () => {
  for (const bytes of [[0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xe2, 0x82]]) {
    expect(refusal(Buffer.from([0x22, ...bytes, 0x22])).reason).toBe('INVALID_UTF8');
  }
});

test('depth is counted in levels, and 100,000 of them are refused like 65', () => {
  const nested = (levels: number) => '['.repeat(levels) + ']'.repeat(levels);
  expect(plain(nested(64))).toEqual(JSON.parse(nested(64)));
  expect(refusal(nested(65)).reason).toBe('TOO_DEEP');
  expect(refusal('['.repeat(100_000)).reason).toBe('TOO_DEEP');
  expect(refusal('{"a":'.repeat(100_000)).reason).toBe('TOO_DEEP');
  expect(refusal('[]', 0).reason).toBe('TOO_DEEP');
});

test('a key twice is found among any number of keys, however either is written', () => {
  for (const count of [1, 8, 31, 32, 33, 34, 100, 5000]) {
    const keys = Array.from({ length: count }, (_, i) => `"k${i}":${i}`);
    expect(plain(`{${keys.join()}}`)).toEqual(JSON.parse(`{${keys.join()}}`));
    expect(refusal(`{${keys.join()},"k${count - 1}":0}`).reason).toBe('DUPLICATE_KEY');
    expect(refusal(`{${keys.join()},"\\u006b0":0}`).reason).toBe('DUPLICATE_KEY');
    expect(refusal(`{"\\u006b0":0,${keys.join()}}`).reason).toBe('DUPLICATE_KEY');
  }
  // Keys of one hash: 31 * 'A' + 'b' = 31 * 'B' + 'C'.
  expect(plain('{"Ab":1,"BC":2}')).toEqual({ Ab: 1, BC: 2 });
});

test('an error says where in the text and where in the value', () => {
  const text = '{"data":[{},{},{},{"address":{"c\\u0069ty":1e999}}]}';
  const error = refusal(text);
  expect({ path: error.path, offset: error.offset }).toEqual({
    path: 'data[3].address.city',
    offset: text.indexOf('1e999'),
  });
  expect(refusal('{"a":{"b":1},"c":{"d":[1,2],"d":3}}').path).toBe('c.d');
  expect(refusal('nope').path).toBeUndefined();
});

test('a caller that pulls meets every rule, whether it enters a value or skips it', () => {
  const reader = new JsonReader(
    Buffer.from(' {"skip":[1,{"a":"x"}] , "k\\u0065y" : "v\\n", "n":-1.50, "b":true,"z":null} '),
    {
      maxDepth: 3,
    },
  );
  const seen: unknown[] = [];
  reader.enterObject();
  while (reader.nextMember()) {
    const key = reader.key();
    const type = reader.peekType();
    if (type === 'string') seen.push(key, reader.readString());
    else if (type === 'number') seen.push(key, reader.readNumber());
    else if (type === 'boolean') seen.push(key, reader.readBoolean());
    else if (type === 'null') seen.push(key, reader.readNull());
    else {
      const start = reader.skipValue();
      seen.push(key, reader.bytes.toString('utf8', start, reader.position));
    }
  }
  reader.end();
  expect(seen).toEqual(['skip', '[1,{"a":"x"}]', 'key', 'v\n', 'n', '-1.50', 'b', true, 'z', null]);
  const other = (text: string) => new JsonReader(Buffer.from(text), { maxDepth: 3 });
  expect(errorOf(() => other('1').readString()).reason).toBe('UNEXPECTED_TYPE');
  expect(errorOf(() => other('[]').enterObject()).reason).toBe('UNEXPECTED_TYPE');
  expect(errorOf(() => other('?').enterArray()).reason).toBe('MALFORMED');
});

test('numbers come back as they were written', () => {
  const text = '[1.0,-0,1E+2,12345678901234567890.12345678901234567890,{"a":0.10}]';
  expect(toText(readJson(Buffer.from(text), { maxDepth: 2 }))).toBe(text);
  const whole = ['0', '-0.0', '1.0', '1.5e1', '100e-2', '12345678901234567890', '0e-5', '1e3'];
  const broken = ['0.5', '1.05e1', '1e-1', '12345678901234567890.5', '100e-3'];
  expect([...whole, ...broken].filter((number) => new JsonNumber(number).isInteger)).toEqual(whole);
});

const string = fc.string({ unit: 'binary', maxLength: 12 }).map((text) => text.replaceAll('\0', ''));
const { value } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    fc.oneof(
      fc.constant(null),
      fc.boolean(),
      string,
      fc.double({ noNaN: true, min: -1e300, max: 1e300 }),
      fc.integer(),
    ),
    fc.array(tie('value'), { maxLength: 5 }),
    fc.dictionary(string, tie('value'), { maxKeys: 5 }),
  ),
}));
const text = fc
  .tuple(value, fc.constantFrom(undefined, 1, '\t'))
  .map(([sample, indent]) => JSON.stringify(sample, undefined, indent))
  .filter((sample) => !/e-3[0-9][0-9]|__proto__/.test(sample));

test('every text that JSON.stringify makes is read as the same value', async () => {
  await checkProperty(
    'shared/reader texts',
    1000,
    fc.property(text, (sample) => {
      expect(plain(sample)).toEqual(JSON.parse(sample));
      expect(JSON.parse(toText(readJson(Buffer.from(sample), { maxDepth: 64 })))).toEqual(JSON.parse(sample));
    }),
  );
});

test('a damaged text is refused with a JsonError or is what JSON.parse reads', async () => {
  const damage = fc.constantFrom(...'{}[]",:\\ 01e.-utfn\n\0é', '\\u', '"a":', '{}', ',,');
  await checkProperty(
    'shared/reader damaged texts',
    3000,
    fc.property(text, fc.nat(), fc.nat(3), damage, (sample, place, removed, inserted) => {
      const at = place % (sample.length + 1);
      const damaged = Buffer.from(sample.slice(0, at) + inserted + sample.slice(at + removed)).toString();
      let parsed: unknown;
      let valid = true;
      try {
        parsed = JSON.parse(damaged);
      } catch {
        valid = false;
      }
      let read: { value: unknown } | JsonError;
      try {
        read = { value: plain(damaged) };
      } catch (error) {
        if (!(error instanceof JsonError)) throw error;
        read = error;
      }
      if (!(read instanceof JsonError)) expect([valid, read.value]).toEqual([true, parsed]);
      else if (valid) expect(['MALFORMED', 'INVALID_UTF8', 'BYTE_ORDER_MARK', 'TOO_DEEP']).not.toContain(read.reason);
    }),
  );
});
