import { randomBytes } from 'node:crypto';
import { maxUtia } from '@granary/shared/money/amounts';
import { makeQuoteId, readQuoteId, type QuoteBinding } from './quote-id';

const key = randomBytes(32);
const binding: QuoteBinding = {
  appId: 'films',
  requestHash: Buffer.alloc(32),
  network: 'cosmos:celestia',
  asset: 'utia',
  payTo: 'celestia1x',
  rateRevision: 0,
};
const terms = { expiresAtSeconds: 2_000_000_000, amountUtia: 250_000n, appSharePpm: 800_000 };

test('a quote carries its terms, and is unlike any other one for the same', () => {
  for (const amountUtia of [1n, 255n, 256n, maxUtia]) {
    for (const expiresAtSeconds of [1, 2 ** 32, 2 ** 39]) {
      const id = makeQuoteId(key, binding, { ...terms, amountUtia, expiresAtSeconds });
      expect(id).toMatch(/^[A-Za-z0-9_-]{51}$/);
      expect(readQuoteId(key, binding, id)).toEqual({ ...terms, amountUtia, expiresAtSeconds });
    }
  }
  expect(new Set(Array.from({ length: 1_000 }, () => makeQuoteId(key, binding, terms))).size).toBe(1_000);
});

test('a quote is worth nothing for anything else, under another key, or with any bit changed', () => {
  const id = makeQuoteId(key, binding, terms);
  expect(readQuoteId(randomBytes(32), binding, id)).toBeUndefined();
  for (const name of Object.keys(binding) as Array<keyof QuoteBinding>) {
    const other =
      name === 'requestHash' ? Buffer.alloc(32, 1) : name === 'rateRevision' ? 1 : `${String(binding[name])}x`;
    expect(readQuoteId(key, { ...binding, [name]: other }, id)).toBeUndefined();
  }
  // Parts do not run into each other.
  expect(readQuoteId(key, { ...binding, network: `${binding.network}u`, asset: 'tia' }, id)).toBeUndefined();
  const bytes = Buffer.from(id, 'base64url');
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const changed = Buffer.from(bytes);
    changed[bit >> 3]! ^= 1 << (bit & 7);
    expect(readQuoteId(key, binding, changed.toString('base64url'))).toBeUndefined();
  }
  for (const text of ['', id.slice(1), `${id}A`, `${id}=`, ` ${id}`, id.replace(/.$/, '!'), 'x'.repeat(10_000)]) {
    expect(readQuoteId(key, binding, text)).toBeUndefined();
  }
});
