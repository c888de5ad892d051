import { jsonText, parseExact, parseAsWritten, plainText } from './exact-json.ts';

test.each([
  '{"a":0.10000000000000001,"b":[12345678901234567890,1e400],"c":"12345678901234567890"}',
  '{"a":1.5,"b":-0.25,"c":"\\"-1e999\\"","d":null}',
])('prints the digits that it has read: %s', (text) => {
  expect(jsonText(parseExact(text))).toBe(text);
});

test('a number that JavaScript has is a number', () => {
  expect(parseExact('{"a":1.50,"b":15e-1}')).toEqual({ a: 1.5, b: 1.5 });
});

test('the cell of a table shows digits, texts and JSON', () => {
  const { a, b, c } = parseExact('{"a":0.10000000000000001,"b":[12345678901234567890],"c":"x"}') as Record<
    string,
    unknown
  >;
  expect([a, b, c, null, true].map(plainText)).toEqual([
    '0.10000000000000001',
    '[12345678901234567890]',
    'x',
    '',
    'true',
  ]);
});

test('text that is no JSON is an error', () => {
  expect(() => parseExact('{"a":01x}')).toThrow(SyntaxError);
});

test('numbers can be kept as they are written', () => {
  const text = '{"a":1.50,"b":[15e-1,-0,7],"c":"1.50"}';
  expect(jsonText(parseAsWritten(text))).toBe(text);
  expect(parseAsWritten('{"b":[7]}')).toEqual({ b: [7] });
});
