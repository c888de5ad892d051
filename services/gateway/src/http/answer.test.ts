import { JsonText, jsonText, stringify } from './answer';

test('values are written as JSON.stringify writes them', () => {
  for (const value of [null, true, 1.5, 'a"\u2028', [], {}, [1, undefined, { a: undefined, 'b c': [null] }]]) {
    expect(stringify(value)).toBe(JSON.stringify(value));
  }
});

test("a service's own JSON text is passed through, digit for digit", () => {
  expect(stringify({ a: jsonText('{"n":12345678901234567890.10}'), b: [new JsonText('1e2')] })).toBe(
    '{"a":{"n":12345678901234567890.10},"b":[1e2]}',
  );
  expect(jsonText(Buffer.alloc(0))).toBeNull();
});
