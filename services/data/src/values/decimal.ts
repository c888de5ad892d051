/**
 * Exact arithmetic on JSON numbers in their own text: a double rounds from 16 digits on, and no rule of a schema or
 * of uniqueness may. Sizes are bounded by the reader: 64 digits, exponents within ±308.
 */
interface Decimal {
  negative: boolean;
  /** Digits without leading and trailing zeros; empty for zero. */
  digits: string;
  /** Power of ten of the last digit. */
  exponent: number;
}

function parse(text: string): Decimal {
  const [mantissa = '', exponent = '0'] = text.toLowerCase().split('e');
  const negative = mantissa.startsWith('-');
  const [whole = '', fraction = ''] = mantissa.replace('-', '').split('.');
  const digits = (whole + fraction).replace(/^0+/, '');
  const significant = digits.replace(/0+$/, '');
  if (significant === '') return { negative: false, digits: '', exponent: 0 };
  return {
    negative,
    digits: significant,
    exponent: Number(exponent) - fraction.length + digits.length - significant.length,
  };
}

/** One text for one value: `1`, `1.0` and `10e-1` all give `1e0`. */
export function canonicalDecimal(text: string): string {
  const { negative, digits, exponent } = parse(text);
  return digits === '' ? '0' : `${negative ? '-' : ''}${digits}e${exponent}`;
}

/** Whether a number has no fraction: `1.0` and `10e-1` have none. */
export const isWhole = (text: string): boolean => parse(text).exponent >= 0;

/** Negative, zero or positive, as a is less than, equal to or greater than b. */
export function compareDecimals(a: string, b: string): number {
  // Doubles that differ were rounded from numbers in the same order.
  const difference = Number(a) - Number(b);
  if (difference !== 0 && Number.isFinite(difference)) return difference;
  const [x, y] = [parse(a), parse(b)];
  const low = Math.min(x.exponent, y.exponent);
  const scaled = (decimal: Decimal) =>
    BigInt(`${decimal.negative ? '-' : ''}${decimal.digits || '0'}`) * 10n ** BigInt(decimal.exponent - low);
  const [left, right] = [scaled(x), scaled(y)];
  return left < right ? -1 : left > right ? 1 : 0;
}
