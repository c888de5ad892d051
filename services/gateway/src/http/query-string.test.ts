import { parseQueryString } from './query-string';

const reasonOf = (text: string) => {
  try {
    parseQueryString(text);
    return undefined;
  } catch (error) {
    return (error as { reason: string }).reason;
  }
};

test('what is accepted means the same as to URLSearchParams', () => {
  for (const text of [
    '',
    'a=1&b=2',
    'a',
    'a=',
    '=x',
    '&&a=1&',
    'a=b=c',
    'a+b=c+d',
    'a=%2B%20+',
    '%61=%C3%A9',
    'price.%24gte=10',
    'q=%F0%9F%8C%BE',
    'toString=1&__proto__=2&constructor=3',
  ]) {
    expect([...parseQueryString(text)]).toEqual([...new URLSearchParams(text)]);
  }
});

test('raw UTF-8 on the request line, which Node hands over as Latin-1, is understood', () => {
  const line = Buffer.from('name=Käse', 'utf8').toString('latin1');
  expect(parseQueryString(line).get('name')).toBe('Käse');
});

test('a repeated name is refused, however it is written', () => {
  for (const text of ['a=1&a=1', 'a=1&%61=2', 'a&a', '__proto__=1&__proto__=2']) {
    expect(reasonOf(text)).toBe('REPEATED_PARAMETER');
  }
});

test('malformed encodings, lone surrogates and U+0000 are refused', () => {
  for (const text of ['a=%', 'a=%z1', 'a=%FF', 'a=%ED%A0%80', '%E2%82=1', 'a=\u00ff']) {
    expect(reasonOf(text)).toBe('MALFORMED_URL');
  }
  expect(reasonOf('a=%00')).toBe('VALIDATION_FAILED');
  expect(reasonOf('%00=a')).toBe('VALIDATION_FAILED');
});
