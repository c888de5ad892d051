import { DOT, ZERO } from './bytes';

/** Digits of a number as written, leading zeros included, without those of its exponent. */
export const numberDigitsMax = 64;
/** Digits of a number that Postgres has computed or printed without its exponent: as many as its numeric may have. */
export const computedDigitsMax = 147_455;
/** Bound of the written exponent, and of the decimal magnitude of the value. */
export const numberExponentMax = 308;

/**
 * Whether an exponent is within its bounds, as written and together with its mantissa: `10e308` is beyond, and so is
 * `0.1e-308`. The mantissa stands from `mantissaStart` to `mantissaEnd` without its sign, the digits of the exponent
 * from `from` to `to`.
 */
export function isExponentInRange(
  bytes: Buffer,
  mantissaStart: number,
  mantissaEnd: number,
  negative: boolean,
  from: number,
  to: number,
): boolean {
  let size = 0;
  for (let i = from; i < to; i += 1) {
    size = size * 10 + (bytes[i] as number) - ZERO;
    if (size > numberExponentMax) return false;
  }
  let dot = mantissaStart;
  while (dot < mantissaEnd && bytes[dot] !== DOT) dot += 1;
  for (let i = mantissaStart; i < mantissaEnd; i += 1) {
    if (i === dot || bytes[i] === ZERO) continue;
    // The power of ten of the first digit that is not zero.
    const magnitude = (i < dot ? dot - 1 - i : dot - i) + (negative ? -size : size);
    return Math.abs(magnitude) <= numberExponentMax;
  }
  return true;
}
