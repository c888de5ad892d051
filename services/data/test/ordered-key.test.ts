import type { JsonType } from '@granary/shared/json/reader';
import { readJson } from '@granary/shared/json/value';
import { createLogger } from '@granary/shared/logger';
import { migrate } from '@granary/shared/postgres/migrate';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { testDatabase } from '@granary/testing/database';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { join } from 'node:path';
import { compareDecimals } from '../src/values/decimal';
import { parseInstant } from '../src/values/instant';
import { isTruncated, orderedKey, OrderedKeys } from '../src/values/ordered-key';
import { sortOrder } from './support/query-reference';
import { seededRandom, type Random } from './support/random';

const valueCount = size({ run: 2_000, long: 100_000 });
const batchSize = 5_000;

const escaped = (text: string, isUpper: boolean): string =>
  text
    .split('')
    .map((unit) => unit.charCodeAt(0).toString(16).padStart(4, '0'))
    .map((hex) => `\\u${isUpper ? hex.toUpperCase() : hex}`)
    .join('');

const others = ['true', 'false', 'null', '[]', '[1,"x"]', '{}', '{"a":[null]}', '0', '-0', '0.000', '-0e5', '""'];

/** Texts of JSON values of every type, many at the borders of what sorts and is cut. */
function valueGenerator(random: Random) {
  const pick = <T>(choices: readonly T[]): T => choices[random(choices.length)]!;
  const digits = (count: number): string => Array.from({ length: count }, () => pick([...'0012345678999'])).join('');

  function numberText(): string {
    const whole = random(4) === 0 ? '0' : `${1 + random(9)}${digits(random(pick([2, 6, 20, 40])))}`;
    const fraction = random(2) === 0 ? '' : `.${digits(1 + random(pick([2, 6, 22])))}`;
    const exponent = random(3) > 0 ? '' : `${pick(['e', 'E'])}${pick(['', '+', '-'])}${random(pick([4, 20, 240]))}`;
    return `${random(2) === 0 ? '-' : ''}${whole}${fraction}${exponent}`;
  }

  /** A character of any plane, more often one that sorts next to another kind of character. */
  function character(): string {
    const borders = [
      0x1f, 0x20, 0x22, 0x5c, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xfffd, 0xffff, 0x10000, 0x10ffff,
    ];
    const point = pick([0x20 + random(0x5f), 1 + random(0x10ffff), pick(borders), 0x61 + random(3)]);
    return point >= 0xd800 && point <= 0xdfff ? 'x' : String.fromCodePoint(point);
  }

  function stringText(): string {
    const around = 'x'.repeat(pick([0, 0, 0, 0, 245, 250, 252, 253, 254, 255, 256, 257, 300, 2_000]));
    const text = JSON.stringify(around + Array.from({ length: random(12) }, character).join(''));
    if (random(6) > 0) return text;
    // Any character may be escaped, one beyond the first plane as two units.
    return text.replace(/\\u....|\\.|[^\\"]/gsu, (part) =>
      part.startsWith('\\') || random(4) > 0 ? part : escaped(part, pick([false, true])),
    );
  }

  function instantText(): string {
    const two = (bound: number): string => String(random(bound)).padStart(2, '0');
    const year = pick(['0001', '1969', '1970', '2024', '9999', String(random(10_000)).padStart(4, '0')]);
    const fraction = pick(['', '', '.5', '.000001', '.999999', `.${digits(1 + random(12))}`]);
    const zone = pick(['Z', 'z', `+${two(25)}:${two(60)}`, `-${two(24)}:${two(60)}`, '']);
    return `"${year}-${two(13)}-${two(32)}${pick(['T', 't', ' '])}${two(24)}:${two(60)}:${two(61)}${fraction}${zone}"`;
  }

  const valueText = (): string =>
    pick([numberText, numberText, stringText, stringText, instantText, () => pick(others)])();

  /** A text of an instant, or what only resembles one. */
  function almostInstant(): string {
    const number = (count: number, bound: number): string => String(random(bound)).padStart(count, '0');
    const day = `${pick(['0000', '0001', '1969', '2024', '9999', number(4, 10_000)])}-${number(2, 14)}-${number(2, 33)}`;
    const fraction = pick(['', '', '.', `.${number(1 + random(12), 10)}`]);
    const time = `${number(2, 25)}:${number(2, 61)}:${number(2, 61)}${fraction}`;
    const [east, west] = [`+${number(2, 25)}:${number(2, 61)}`, `-${number(2, 25)}:${number(2, 60)}`];
    const zone = pick(['Z', 'z', '', east, west, '+0100']);
    return `${pick(['', '', '', ' '])}${day}${pick(['T', 't', ' ', ''])}${time}${zone}${pick(['', '', '', '\n'])}`;
  }

  return { valueText, almostInstant };
}

function typeOf(text: string): JsonType {
  const types: Record<string, JsonType> = { '"': 'string', '[': 'array', '{': 'object', t: 'boolean', f: 'boolean' };
  return text === 'null' ? 'null' : (types[text[0]!] ?? 'number');
}

/** The keys of values that stand in one text, in their order. */
function keysOf(texts: readonly string[], isDate: boolean): Buffer[] {
  const text = Buffer.from(texts.join(' '));
  const keys = new OrderedKeys(16);
  let start = 0;
  const places = texts.map((value) => {
    const end = start + Buffer.byteLength(value);
    keys.append(text, { type: typeOf(value), start, end }, isDate);
    start = end + 1;
    return keys.length;
  });
  return places.map((end, at) => {
    const from = (places[at - 1] ?? 0) + 4;
    expect(keys.bytes.readInt32BE(from - 4)).toBe(end - from);
    return keys.bytes.subarray(from, end);
  });
}

let pool: Pool;
beforeAll(async () => {
  const { url } = await testDatabase();
  pool = createPool({ url, size: 1, applicationName: 'test', log: createLogger('data', 'silent') });
  await migrate(pool, join(__dirname, '..', 'migrations'));
});
afterAll(() => pool.end());

describe.each(partsOf('ordered keys', valueCount))('$cases values (seed $seed)', ({ seed, cases }) => {
  const random = seededRandom(seed);
  const { valueText, almostInstant } = valueGenerator(random);

  test('Postgres makes the same keys as the writer of documents', async () => {
    for (let done = 0; done < cases; done += batchSize) {
      const texts = Array.from({ length: Math.min(batchSize, cases - done) }, valueText);
      const found = await pool.query<{ plain: Buffer; dated: Buffer }>(
        `select sort_key(v) as plain, date_sort_key(v) as dated
         from (select text::jsonb as v, n from unnest($1::text[]) with ordinality as t (text, n) offset 0) t order by n`,
        [texts],
      );
      const [plain, dated] = [keysOf(texts, false), keysOf(texts, true)];
      for (const [at, row] of found.rows.entries()) {
        const keys = [plain[at]!, dated[at]!].map((key) => key.toString('hex'));
        const ofPostgres = [row.plain, row.dated].map((key) => key.toString('hex'));
        if (keys.join() !== ofPostgres.join())
          expect({ text: texts[at], keys }).toEqual({ text: texts[at], keys: ofPostgres });
      }
    }
    const missing = await pool.query('select sort_key(null) as plain, date_sort_key(null) as dated');
    expect(missing.rows).toEqual([{ plain: Buffer.of(0xf0), dated: Buffer.of(0xf0) }]);
  });

  test.each([false, true])(
    'a value of a query has the key of that value in a document, of a date field: %s',
    (isDate) => {
      const edges = [84, 85, 86, 255, 256, 257].flatMap((length) =>
        ['x', 'ß', '\ufffd'].map((one) => one.repeat(length)),
      );
      const texts = [
        ...others,
        ...edges.map((text) => JSON.stringify(text)),
        ...Array.from({ length: cases }, valueText),
      ];
      const keys = keysOf(texts, isDate);
      for (const [at, text] of texts.entries()) {
        const key = orderedKey(readJson(Buffer.from(text), { maxDepth: 8 }), isDate);
        expect([text, key.toString('hex')]).toEqual([text, keys[at]!.toString('hex')]);
      }
    },
  );

  test.each([false, true])('keys sort as values do, of a date field: %s', (isDate) => {
    const texts = [...others, ...Array.from({ length: cases }, valueText)];
    const keys = keysOf(texts, isDate);
    const values = texts.map((text) => JSON.parse(text) as unknown);
    const check = (a: number, b: number) => {
      const byKey = Math.sign(Buffer.compare(keys[a]!, keys[b]!));
      const byDouble = Math.sign(sortOrder(values[a], values[b], false, isDate) ?? 0);
      // A double has fewer digits than a number may have.
      const areNumbers = typeof values[a] === 'number' && typeof values[b] === 'number';
      const expected = areNumbers ? Math.sign(compareDecimals(texts[a]!, texts[b]!)) : byDouble;
      const isTie = byKey === 0 && isTruncated(keys[a]!);
      if (byKey !== expected && !isTie) {
        expect([texts[a], texts[b], isDate, byKey]).toEqual([texts[a], texts[b], isDate, expected]);
      }
    };
    const sorted = [...keys.keys()].sort((a, b) => Buffer.compare(keys[a]!, keys[b]!));
    for (let at = 1; at < sorted.length; at += 1) check(sorted[at - 1]!, sorted[at]!);
    for (let pair = 0; pair < 5 * cases; pair += 1) check(random(texts.length), random(texts.length));
  });

  test('Postgres and the writer of keys read the same instant in every text', async () => {
    const texts = Array.from({ length: cases }, almostInstant);
    const found = await pool.query<{ instant: string | null }>(
      'select trim_scale(instant_of(text))::text as instant from unnest($1::text[]) with ordinality as t (text, n) order by n',
      [texts],
    );
    const instants = texts.map((text) => parseInstant(text) ?? null);
    expect(found.rows.map(({ instant }) => instant)).toEqual(instants);
    expect(instants.filter((instant) => instant !== null).length).toBeGreaterThan(cases / 25);
  });
});
