import { randomBytes } from 'node:crypto';
import { FieldCipher } from './field-cipher';

const dataKey = { version: 1, key: randomBytes(32) };
const place = { collectionNumber: 7n, name: 'email' };
const cipher = new FieldCipher(place, [dataKey]);
const encrypt = (id: string, text: string, by = cipher) => by.encrypt(id, Buffer.from(text), `s:${text}`);
const termIn = (stored: string) => (JSON.parse(stored) as { $term: string }).$term;

test.each(['""', '"é😀"', '1.50', 'true', `"${'x'.repeat(100_000)}"`])('%.20s is decrypted as it was', (text) => {
  expect(cipher.decrypt('a', encrypt('a', text))?.toString()).toBe(text);
});

test('equal values have one blind index and many ciphertexts', () => {
  const all = Array.from({ length: 1_000 }, () => encrypt('a', '"same"'));
  expect(new Set(all).size).toBe(1_000);
  expect(new Set(all.map(termIn))).toEqual(new Set([cipher.term('s:"same"')]));
  expect(termIn(encrypt('a', '"other"'))).not.toBe(termIn(all[0]!));
});

test.each([
  ['field', new FieldCipher({ ...place, name: 'phone' }, [dataKey])],
  ['collection', new FieldCipher({ ...place, collectionNumber: 8n }, [dataKey])],
  ['app', new FieldCipher(place, [{ version: 1, key: randomBytes(32) }])],
])('another %s decrypts nothing and has other blind indexes', (_, other) => {
  const stored = encrypt('a', '"x"');
  expect(other.decrypt('a', stored)).toBeUndefined();
  expect(other.term('s:"x"')).not.toBe(cipher.term('s:"x"'));
});

test('a value of another document, and one of which any character was changed, is not decrypted', () => {
  const stored = encrypt('a', '"x"');
  expect(cipher.decrypt('b', stored)).toBeUndefined();
  for (let at = 0; at < stored.length; at += 1) {
    const changed = `${stored.slice(0, at)}${stored[at] === 'A' ? 'B' : 'A'}${stored.slice(at + 1)}`;
    // The last character of base64url may hold bits that are not of the text.
    const decrypted = cipher.decrypt('a', changed);
    if (decrypted)
      expect(Buffer.from(changed.split('.')[2]!.split('"')[0]!, 'base64url')).toEqual(
        Buffer.from(stored.split('.')[2]!.split('"')[0]!, 'base64url'),
      );
  }
  for (const other of [
    '',
    '{}',
    stored.slice(0, -1),
    `${stored} `,
    stored.replace('v1', 'v2'),
    '{"$enc":"v1.1.","$term":""}',
  ])
    expect(cipher.decrypt('a', other)).toBeUndefined();
});

test('a later key encrypts, earlier ones decrypt, and the blind index stays', () => {
  const both = new FieldCipher(place, [dataKey, { version: 2, key: randomBytes(32) }]);
  const [old, later] = [encrypt('a', '"x"'), encrypt('a', '"x"', both)];
  expect([old.includes('v1.1.'), later.includes('v1.2.')]).toEqual([true, true]);
  for (const stored of [old, later]) {
    expect(both.decrypt('a', stored)?.toString()).toBe('"x"');
    expect(termIn(stored)).toBe(both.term('s:"x"'));
  }
  expect([both.isCurrent(old), both.isCurrent(later)]).toEqual([false, true]);
  expect(cipher.decrypt('a', later)).toBeUndefined();
});
