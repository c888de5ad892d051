import { compileWatch, documentDepthMax, readDocument } from '@granary/shared/json/document';
import { JsonError, type JsonErrorReason } from '@granary/shared/json/error';
import { JsonReader } from '@granary/shared/json/reader';
import { testDatabase } from '@granary/shared/testing/database';
import { randomInt } from 'node:crypto';
import { Client } from 'pg';
import { seededRandom } from './support/random';

const textCount = 100_000;
const batchSize = 5_000;

/** What the generators of documents draw from numbers with a seed. */
class Random {
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
class Writer {
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

function mutate(random: Random, text: Buffer): Buffer {
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

const watch = compileWatch([['a'], ['a', 'b'], ['b', '0'], ['id'], ['c', '1', 'a']]);

/** Our judgement: undefined when the text is accepted, as any JSON value or as a document. */
function judge(bytes: Buffer): { value: JsonErrorReason | undefined; document: JsonErrorReason | undefined } {
  const reasonOf = (read: (reader: JsonReader) => unknown): JsonErrorReason | undefined => {
    try {
      const reader = new JsonReader(bytes, { maxDepth: documentDepthMax });
      read(reader);
      reader.end();
      return undefined;
    } catch (error) {
      if (error instanceof JsonError) return error.reason;
      throw error;
    }
  };
  return {
    value: reasonOf((reader) => reader.skipValue()),
    document: reasonOf((reader) => readDocument(reader, watch)),
  };
}

/** Postgres can be sent any text but one that is no UTF-8 or holds a NUL: it can store neither. */
function sendable(bytes: Buffer): string | undefined {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    return text.includes('\0') ? undefined : text;
  } catch {
    return undefined;
  }
}

/** Whether a rule of ours that Postgres does not have applies to a text that Postgres takes. */
const ownRules: Partial<Record<JsonErrorReason, (text: string) => boolean>> = {
  TOO_DEEP: (text) => depthOf(JSON.parse(text)) > 64,
  FORBIDDEN_KEY: (text) => {
    let found = false;
    JSON.parse(text, (key, value: unknown) => {
      found ||= key === '__proto__';
      return value;
    });
    return found;
  },
  NUMBER_OUT_OF_RANGE: (text) =>
    (text.replaceAll(/"(?:[^"\\]|\\.)*"/gs, '""').match(/[0-9][0-9.eE+-]*/g) ?? []).some((number) => {
      const [mantissa = '', exponent = '0'] = number.toLowerCase().split('e');
      const [whole = '', fraction = ''] = mantissa.split('.');
      const significant = (whole + fraction).replace(/^0+/, '');
      const magnitude = significant.length - 1 - fraction.length + Number(exponent);
      return (
        (whole + fraction).length > 64 ||
        Math.abs(Number(exponent)) > 308 ||
        (significant !== '' && Math.abs(magnitude) > 308)
      );
    }),
  INVALID_ID: (text) => {
    const { id } = JSON.parse(text) as { id: unknown };
    return id === '' || typeof id === 'boolean' || (typeof id === 'object' && id !== null);
  },
};

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return 1 + Object.values(value).reduce<number>((deepest, member) => Math.max(deepest, depthOf(member)), 0);
}

test('of 100,000 texts every one that is accepted is jsonb with unique keys to Postgres, and every one that is refused is not, or breaks a rule of ours', async () => {
  const seed = randomInt(2 ** 31);
  const random = new Random(seed);
  const writer = new Writer(random);
  const client = new Client({ connectionString: (await testDatabase()).url });
  await client.connect();
  const seen = new Map<string, number>();
  const count = (what: string) => seen.set(what, (seen.get(what) ?? 0) + 1);
  const wrong: unknown[] = [];
  try {
    for (let done = 0; done < textCount; done += batchSize) {
      const texts = Array.from({ length: batchSize }, (_, i) => {
        const text = Buffer.from(writer.document());
        return i % 2 === 0 ? text : mutate(random, text);
      });
      const sent = texts.map((bytes) => ({ bytes, text: sendable(bytes) }));
      const { rows } = await client.query<{ value: boolean; document: boolean }>(
        `select pg_input_is_valid(t, 'jsonb') and t is json with unique keys as value,
                pg_input_is_valid(t, 'jsonb') and t is json object with unique keys as document
           from unnest($1::text[]) with ordinality as given (t, place) order by place`,
        [sent.map(({ text }) => text ?? '?')],
      );
      sent.forEach(({ bytes, text }, i) => {
        const ours = judge(bytes);
        const theirs = rows[i]!;
        for (const as of ['value', 'document'] as const) {
          const reason = ours[as];
          count(`${as} ${reason ?? 'accepted'}`);
          const right = theirs[as]
            ? reason === undefined || (text !== undefined && ownRules[reason]?.(text) === true)
            : reason !== undefined;
          if (!right) {
            wrong.push({
              seed,
              as,
              ours: reason ?? 'accepted',
              postgres: theirs[as],
              base64: bytes.toString('base64'),
              text,
            });
          }
        }
      });
    }
  } finally {
    await client.end();
  }
  expect(wrong.slice(0, 5)).toEqual([]);

  // The texts are worth something only if they reach every rule.
  expect(seen.get('document accepted')).toBeGreaterThan(0.3 * textCount);
  expect(seen.get('document MALFORMED')).toBeGreaterThan(0.2 * textCount);
  const reasons: JsonErrorReason[] = [
    ...(['INVALID_UTF8', 'BYTE_ORDER_MARK', 'NUL_CHARACTER', 'LONE_SURROGATE', 'TOO_DEEP', 'DUPLICATE_KEY'] as const),
    ...(['FORBIDDEN_KEY', 'NUMBER_OUT_OF_RANGE', 'NOT_AN_OBJECT', 'INVALID_ID'] as const),
  ];
  expect(reasons.filter((reason) => (seen.get(`document ${reason}`) ?? 0) < 50)).toEqual([]);
});
