import { readSolanaAddress } from './address';

const feePayersMax = 16;

/** The addresses that pay the fees of transactions on Solana. The first one is offered; the others are accepted too. */
export const parseSolanaFeePayers = (text: string): string[] =>
  text === '' ? [] : text.split(',').map((entry) => entry.trim());

export function areSolanaFeePayers(text: string): boolean {
  const addresses = parseSolanaFeePayers(text);
  return (
    addresses.length <= feePayersMax &&
    new Set(addresses).size === addresses.length &&
    addresses.every((address) => readSolanaAddress(address) !== undefined)
  );
}

export const solanaFeePayersRule = `addresses on Solana are expected, in base58, separated by commas, each once, at most ${feePayersMax}`;
