/**
 * How numbers of documents are read: as JavaScript does, whose numbers have some 16 digits, or exactly, where a number
 * that would change is a string with its digits; or what reads the texts of JSON in the place of `JSON.parse`.
 */
export type Numbers = 'double' | 'exact' | ((text: string) => unknown);

interface Source {
  source?: string;
}

const decimal = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/;

/** One spelling for each value: `1.50`, `15e-1` and `1.5` are the same. */
function canonical(text: string): string {
  const [, sign, whole = '', fraction = '', exponent = '0'] = decimal.exec(text) ?? [];
  const digits = (whole + fraction).replace(/^0+/, '');
  const significant = digits.replace(/0+$/, '');
  if (significant === '') return '0';
  return `${sign}${significant}e${Number(exponent) - fraction.length + digits.length - significant.length}`;
}

function exactly(_: string, value: unknown, context?: Source): unknown {
  const source = context?.source;
  if (typeof value !== 'number' || source === undefined) return value;
  return canonical(source) === canonical(String(value)) ? value : source;
}

/** Throws a TypeError where the engine cannot tell how a number was written. */
export function parserOf(numbers: Numbers): (text: string) => unknown {
  if (typeof numbers === 'function') return numbers;
  if (numbers === 'double') return JSON.parse;
  let source: string | undefined;
  JSON.parse('1', (_, __, context?: Source) => (source = context?.source));
  if (source === undefined) {
    throw new TypeError(
      "numbers: 'exact' needs an engine whose JSON.parse passes source texts: Node 22, Chromium 114 or later",
    );
  }
  return (text) => JSON.parse(text, exactly) as unknown;
}

/**
 * A number of any length for a document that is written: `{ id: 'b1', price: exactNumber('0.10000000000000001') }`.
 * Throws a TypeError for what is no number of JSON, or where the engine has no `JSON.rawJSON`.
 */
export function exactNumber(text: string): number {
  const { rawJSON } = JSON as unknown as { rawJSON?: (text: string) => unknown };
  if (!rawJSON) throw new TypeError('exactNumber needs an engine with JSON.rawJSON: Node 22, Chromium 114 or later');
  if (!decimal.test(text)) throw new TypeError(`${text} is not a number of JSON`);
  return rawJSON(text) as number;
}
