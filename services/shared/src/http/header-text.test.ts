import { headerText } from './header-text';

const received = (bytes: Buffer): string => bytes.toString('latin1');

test('the bytes of a header are UTF-8 where they are valid UTF-8, else Latin-1', () => {
  for (const text of ['', 'plain', 'grüße', '日本語', '😀', '{"a":"ß"}']) {
    expect(headerText(received(Buffer.from(text)))).toBe(text);
  }
  for (const text of ['grüße', '\xff', 'Ã', 'ÿþ']) expect(headerText(received(Buffer.from(text, 'latin1')))).toBe(text);
  const isOverlong = Buffer.from([0xc0, 0xaf]);
  expect(headerText(received(isOverlong))).toBe('À¯');
});
