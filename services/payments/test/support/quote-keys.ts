import { randomBytes } from 'node:crypto';
import type { QuoteKeys } from '@granary/payments/quotes/quote-keys';

/** One key that nothing stores. */
export function fixedQuoteKeys(): QuoteKeys {
  const key = randomBytes(32);
  return { current: () => Promise.resolve(key), accepted: () => Promise.resolve([key]) };
}
