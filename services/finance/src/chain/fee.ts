/**
 * Enough gas for a transfer to so many recipients; what is not used is paid for too. What is taken by grants takes more
 * for each: two balances are read and written, and the grant.
 */
export const gasLimit = (recipients: number, isGranted = false): bigint =>
  100_000n + (isGranted ? 60_000n : 25_000n) * BigInt(recipients);

const scale = 1_000_000_000n;

/** The fee of so much gas, rounded up; prices have up to nine decimals. */
export function feeOf(gas: bigint, gasPrice: number): bigint {
  return (gas * BigInt(Math.round(gasPrice * Number(scale))) + scale - 1n) / scale;
}
