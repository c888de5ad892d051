import { createHash } from 'node:crypto';
import { bech32 } from '@scure/base';

/** The account that fees go to. It belongs to a module, so chains refuse transfers to it. */
export function feeCollector(prefix: string): string {
  return bech32.encode(prefix, bech32.toWords(createHash('sha256').update('fee_collector').digest().subarray(0, 20)));
}
