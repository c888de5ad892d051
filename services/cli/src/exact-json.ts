import { randomBytes } from 'node:crypto';

const tokens = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const decimal = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/;

/** Nobody can guess it, so that no text of a document can pass for a number. */
const mark = `\uE000${randomBytes(9).toString('hex')}:`;
const markedNumber = new RegExp(`"${mark}([-+.0-9eE]+)"`, 'g');

/** One spelling for each value: `1.50`, `15e-1` and `1.5` are the same. */
function canonical(text: string): string {
  const [, sign, whole = '', fraction = '', exponent = '0'] = decimal.exec(text) ?? [];
  const digits = (whole + fraction).replace(/^0+/, '');
  const significant = digits.replace(/0+$/, '');
  if (significant === '') return '0';
  return `${sign}${significant}e${Number(exponent) - fraction.length + digits.length - significant.length}`;
}

/**
 * Reads JSON so that no digit is lost: a number that JavaScript would change becomes a marked text, of which `jsonText`
 * makes the number again and `plainText` the digits. Throws a SyntaxError.
 */
export const parseExact = (text: string): unknown =>
  parseNumbers(text, (token) => canonical(token) === canonical(String(Number(token))));

/** The same, so that each number keeps its spelling too: `1.50` is printed as `1.50`. */
export const parseAsWritten = (text: string): unknown => parseNumbers(text, (token) => token === String(Number(token)));

/** Marks the numbers that JavaScript is not to have. */
function parseNumbers(text: string, isKept: (token: string) => boolean): unknown {
  const marked = text.replace(tokens, (token) =>
    token.startsWith('"') || isKept(token) ? token : `"${mark}${token}"`,
  );
  return JSON.parse(marked) as unknown;
}

/** JSON of a value that `parseExact` may have read; `indent` as for `JSON.stringify`. */
export const jsonText = (value: unknown, indent?: number): string =>
  (JSON.stringify(value, null, indent) ?? 'null').replace(markedNumber, '$1');

/** A value as a cell of a table shows it: texts as they are, nothing for what is missing, JSON for all else. */
export function plainText(value: unknown): string {
  if (value === undefined || value === null) return '';
  if (typeof value === 'string') return value.startsWith(mark) ? value.slice(mark.length) : value;
  return jsonText(value);
}
