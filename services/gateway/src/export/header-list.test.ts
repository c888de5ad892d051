import { headerList } from './header-list';

test('a list for a header is JSON in ASCII, and ends where it would be too long for a head', () => {
  expect(headerList(['a', 'é"\\', '\n💚'])).toBe('["a","\\u00e9\\"\\\\","\\n\\ud83d\\udc9a"]');
  expect(JSON.parse(headerList(['é"\\', '\n💚']))).toEqual(['é"\\', '\n💚']);
  const long = headerList(Array.from({ length: 100 }, () => 'я'.repeat(80)));
  expect(long.length).toBeLessThan(2_100);
  expect(JSON.parse(long)).toEqual([...Array.from({ length: 4 }, () => 'я'.repeat(80)), '…']);
});
