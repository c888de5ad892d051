// Amounts are whole utia (1 TIA = 1,000,000 utia): `bigint` in code, text on the wire, JSON integers outside.

/** The largest amount: what a JSON number carries exactly. */
export const maxUtia = BigInt(Number.MAX_SAFE_INTEGER);

/** Parses an amount from the wire. The gRPC encoder turns nonsense into "0" silently, so both sides parse. */
export function parseUtia(text: string): bigint {
  if (!/^\d{1,16}$/.test(text)) throw new RangeError('an amount is 1 to 16 digits');
  const amount = BigInt(text);
  if (amount > maxUtia) throw new RangeError('an amount is at most 2^53-1 utia');
  return amount;
}

/** The JSON integer of an amount. */
export function utiaToNumber(amount: bigint): number {
  if (amount < 0n || amount > maxUtia) throw new RangeError('the amount does not fit a JSON integer');
  return Number(amount);
}

/** An amount in TIA as an exact decimal: 1 utia is `0.000001`. */
export function tiaText(amount: bigint): string {
  const digits = amount.toString().padStart(7, '0');
  const decimals = digits.slice(-6).replace(/0+$/, '');
  return decimals === '' ? digits.slice(0, -6) : `${digits.slice(0, -6)}.${decimals}`;
}
