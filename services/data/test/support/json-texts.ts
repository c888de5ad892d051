import { seededRandom } from './random';

/** What the generators of documents draw from numbers with a seed. */
export class Random {
  /** A whole number from 0 up to, without it, `bound`. */
  readonly below: (bound: number) => number;

  constructor(seed: number) {
    this.below = seededRandom(seed);
  }

  /** True once in `n` times. */
  oneIn(n: number): boolean {
    return this.below(n) === 0;
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.below(choices.length)] as T;
  }

  digits(count: number): string {
    return Array.from({ length: count }, () => this.below(10)).join('');
  }
}

const keys = [
  'a',
  'b',
  'c',
  'd',
  'e',
  'id',
  'deleted',
  'name',
  'é',
  '',
  'a\\u0062',
  '\\u0061',
  '\\n',
  '😀',
  '\\ud83d\\ude00',
];
const fragments = [
  'x',
  'Text ',
  'é',
  '€',
  '😀',
  '\u007f',
  '\u2028',
  '\ufffe',
  '\\n',
  '\\"',
  '\\\\',
  '\\/',
  '\\u00e9',
  '\\uD83D\\uDE00',
];
const badFragments = [
  '\\u0000',
  '\\ud800',
  '\\udfff',
  '\\ud800\\ud800',
  '\\ude00\\ud83d',
  '\\x',
  '\\u12',
  '\n',
  '\t',
  '\u0001',
  '\u0000',
];
const numbers = ['0', '-0', '0.0', '1.0', '-1.50', '1e0', '1E+2', '1e-2', '0e0', '123456789012345678901234567890'];
const oddNumbers = [
  '1e308',
  '1e309',
  '9.9e308',
  '10e308',
  '1e-308',
  '0.1e-308',
  '1e-309',
  '0e400',
  '1e0000308',
  '1e131071',
  '1e140000',
  '1e-20000',
  '1e99999999999',
];
const badNumbers = ['01', '-', '+1', '.5', '1.', '1.e1', '1e', '1e+', 'NaN', 'Infinity', '0x1', '--1', '1e1.5', '1_0'];
const snippets = [
  '{',
  '}',
  '[',
  ']',
  ',',
  ':',
  '"',
  '\\',
  ' ',
  '\n',
  '\u000b',
  '\u00a0',
  '0',
  '1',
  '-',
  '.',
  'e',
  'E5',
  'null',
  'true',
  'fals',
  ',,',
  '{}',
  '[]',
  '"a":1,',
  '"a":',
  '\\u0000',
  '\\ud800',
  '\u0000',
  '\ufeff',
  '//',
  "'",
];
const badBytes = [[0xff], [0x80], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xe2, 0x82], [0xc3]];

/** Writes texts of JSON that keep to the grammar except where a rare choice breaks one rule. */
export class JsonWriter {
  constructor(private readonly random: Random) {}

  document(): string {
    const { random } = this;
    if (random.oneIn(200)) return this.nested(random.pick([60, 63, 64, 65, 66, 100, 300]));
    return this.space() + (random.oneIn(12) ? this.value(3) : this.object(3)) + this.space();
  }

  private value(levels: number): string {
    const { random } = this;
    const kind = random.below(levels > 0 ? 10 : 6);
    if (kind < 2) return this.string();
    if (kind < 4) return this.number();
    if (kind < 6)
      return random.oneIn(150)
        ? random.pick(['nul', 'True', 'undefined', 'nulll'])
        : random.pick(['null', 'true', 'false']);
    return kind < 8 ? this.array(levels - 1) : this.object(levels - 1);
  }

  private object(levels: number): string {
    const { random } = this;
    const used = new Set<string>();
    const members: string[] = [];
    for (let count = random.oneIn(100) ? 45 : random.below(5); count > 0; count -= 1) {
      let key = random.oneIn(3) ? `k${random.below(1000)}` : random.pick(keys);
      if (random.oneIn(500)) key += random.pick(badFragments);
      if (random.oneIn(300)) key = random.pick(['__proto__', '__pr\\u006fto__', '__proto', 'constructor']);
      // Mostly each key once; \u0061 is a, so some stand twice in disguise.
      if (used.has(key) && !random.oneIn(8)) continue;
      used.add(key);
      const value = key === 'id' && !random.oneIn(4) ? `"i${random.below(99)}"` : this.value(levels);
      members.push(`${this.space()}"${key}"${this.space()}:${this.space()}${value}${this.space()}`);
    }
    return `{${members.join(',')}${random.oneIn(300) ? ',' : this.space()}}`;
  }

  private array(levels: number): string {
    const { random } = this;
    const elements = Array.from({ length: random.below(4) }, () => this.space() + this.value(levels) + this.space());
    return `[${elements.join(',')}${random.oneIn(300) ? ',' : this.space()}]`;
  }

  private string(): string {
    const { random } = this;
    const parts = Array.from({ length: random.below(4) }, () =>
      random.pick(random.oneIn(150) ? badFragments : fragments),
    );
    return `"${parts.join('')}"`;
  }

  private number(): string {
    const { random } = this;
    if (random.oneIn(100)) return random.pick(badNumbers);
    if (random.oneIn(60)) return random.pick(oddNumbers);
    if (random.oneIn(60)) return `${1 + random.below(9)}${random.digits(55 + random.below(12))}`;
    if (random.oneIn(60)) return `0.${random.digits(60 + random.below(6))}${random.pick(['', 'e300', 'e-245'])}`;
    if (random.oneIn(60))
      return `${random.pick(['', '-'])}1${random.digits(random.below(6))}e${random.pick(['', '-', '+'])}${300 + random.below(12)}`;
    return random.oneIn(2) ? random.pick(numbers) : String(random.below(100_000) / 100);
  }

  private nested(levels: number): string {
    const open = Array.from({ length: levels }, (_, level) => (level === 0 || this.random.oneIn(2) ? '{"a":' : '['));
    return `${open.join('')}1${open
      .reverse()
      .map((text) => (text === '[' ? ']' : '}'))
      .join('')}`;
  }

  private space(): string {
    const { random } = this;
    if (!random.oneIn(8)) return '';
    return random.oneIn(150)
      ? random.pick(['\u000b', '\u00a0', '\f', '\u2028'])
      : random.pick([' ', '\n', '\t', '\r\n', ' \t ']);
  }
}

/** A text with one or two changes that mostly break it. */
export function mutate(random: Random, text: Buffer): Buffer {
  let bytes = text;
  for (let count = 1 + random.below(2); count > 0; count -= 1) {
    const at = random.below(bytes.length + 1);
    const before = bytes.subarray(0, at);
    const after = bytes.subarray(Math.min(bytes.length, at + random.below(3)));
    const slice = bytes.subarray(at, at + random.below(20));
    const snippet = Buffer.from(random.pick(snippets));
    bytes = Buffer.concat(
      random.pick([
        () => [before, after],
        () => [before, snippet, after],
        () => [before, snippet, bytes.subarray(at)],
        () => [before, slice, bytes.subarray(at)],
        () => [before, Buffer.from([random.below(128)]), after],
        () => (random.oneIn(4) ? [before] : [before, slice, slice, after]),
        () => (random.oneIn(4) ? [before, Buffer.from(random.pick(badBytes)), after] : [bytes, snippet]),
        () => (random.oneIn(8) ? [Buffer.from('\ufeff'), bytes] : [snippet, bytes]),
      ])(),
    );
  }
  return bytes;
}
