import { join } from 'node:path';
import { createLogger } from '@granary/shared/logger';
import { migrate } from '@granary/shared/postgres/migrate';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { testDatabase } from '@granary/testing/database';
import { partsOf, seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { searchLanguages } from '../src/catalog/search-language';
import { searchText, searchTextMaxBytes, searchWords } from '../src/values/search-text';
import { seededRandom, type Random } from './support/random';

const textCount = size({ run: 400, long: 2_000 });
const batchSize = 100;
const letters = [...'abcdefghijklmnopqrstuvwxyz0123456789'];
const operators = ['"', ' or ', ' -', '-', '"a b"', ' ', '\\', "'", '(', ')', '!', '&', '|', ':*', '<->'];
const repeated = (text: string): string => text.repeat(Math.ceil(searchTextMaxBytes / Buffer.byteLength(text)) + 1);

/** Words, texts and values of them as JSON. */
function textGenerator(random: Random) {
  const pick = <T>(choices: readonly T[]): T => choices[random(choices.length)]!;
  const word = (length: number): string => Array.from({ length }, () => pick(letters)).join('');
  const filled = (next: () => string): string => {
    const parts: string[] = [];
    for (let bytes = 0; bytes <= searchTextMaxBytes; bytes += Buffer.byteLength(parts.at(-1)!)) parts.push(next());
    return parts.join('');
  };

  /** A character of any plane, more often one that means something to the parser of Postgres. */
  function character(): string {
    const point = pick([0x20 + random(0x5f), 1 + random(0x10ffff), pick([0x130, 0x23a, 0x23e, 0x2212]), 0x61]);
    return point >= 0xd800 && point <= 0xdfff ? ' ' : String.fromCodePoint(point);
  }
  const shortText = (): string => Array.from({ length: random(40) }, character).join('');

  /** A value as JSON: strings, arrays with strings among other elements, anything else. */
  function valueText(): string {
    const around = ['a', 'ä', '漢', '😀', 'Ⱥ'];
    const long = pick(around).repeat(pick([0, 0, 0, 65_530, 65_536, 87_380, 131_072, 262_143, 262_144]));
    const string = (): string => JSON.stringify(shortText() + (random(8) === 0 ? long : ''));
    return pick([
      string,
      string,
      () =>
        `[${Array.from({ length: random(5) }, () => pick([string, () => '1', () => 'null', () => '["x"]'])()).join()}]`,
      () => pick(['1', 'true', 'null', '{}', '{"a":"b"}', '[]', '[1]']),
    ])();
  }

  return { random, pick, word, character, shortText, valueText, filled };
}

function ofWriter(text: string): string | null {
  const types = { '"': 'string', '[': 'array', '{': 'object', t: 'boolean', n: 'null' } as const;
  const type = types[text[0] as keyof typeof types] ?? 'number';
  return searchText(Buffer.from(`x${text}`), { type, start: 1, end: 1 + Buffer.byteLength(text) });
}

let pool: Pool;
beforeAll(async () => {
  const { url } = await testDatabase();
  pool = createPool({ url, size: 1, applicationName: 'test', log: createLogger('data', 'silent') });
  await migrate(pool, join(__dirname, '..', 'migrations'));
});
afterAll(() => pool.end());

describe.each(partsOf('search texts', textCount))('$cases texts (seed $seed)', ({ seed, cases }) => {
  const { random, pick, word, shortText, valueText } = textGenerator(seededRandom(seed));

  test('Postgres makes the same words of a value as the writer of documents, cut at the same character', async () => {
    for (let done = 0; done < cases; done += batchSize) {
      const texts = Array.from({ length: Math.min(batchSize, cases - done) }, valueText);
      const { rows } = await pool.query<{ words: string | null }>(
        `select search_text(text::jsonb) as words from unnest($1::text[]) with ordinality as t (text, n) order by n`,
        [texts],
      );
      for (const [at, text] of texts.entries()) {
        const words = ofWriter(text);
        if (words !== rows[at]!.words) expect({ text, words }).toEqual({ text, words: rows[at]!.words });
        expect(Buffer.byteLength(words ?? '')).toBeLessThanOrEqual(searchTextMaxBytes);
      }
    }
    expect((await pool.query('select search_text(null) as words')).rows).toEqual([{ words: null }]);
  });

  test('any text is a search', async () => {
    for (let done = 0; done < cases; done += batchSize) {
      const searches = Array.from({ length: Math.min(batchSize, cases - done) }, () =>
        Array.from({ length: random(30) }, () => pick([() => pick(operators), shortText, () => word(3)])())
          .join('')
          .slice(0, 1_000),
      );
      await pool.query(`select websearch_to_tsquery('english', s) from unnest($1::text[]) s`, [
        searches.map((search) => searchWords(search.toWellFormed())),
      ]);
    }
  });
});

test('the lower case of no letter of a text is longer than the letter', async () => {
  const grows = ['"C"', '"pg_c_utf8"', 'pg_unicode_fast']
    .map((name) => `octet_length(lower(letter collate ${name})) > octet_length(letter)`)
    .join(' or ');
  const growing = await pool.query<{ letter: string }>(
    `select letter from generate_series(1, 1114111) n, chr(n) letter where n not between 55296 and 57343 and (${grows})`,
  );
  const letters = growing.rows.map(({ letter }) => letter);
  expect(letters).toEqual(expect.arrayContaining(['Ⱥ', 'Ⱦ']));
  const { rows } = await pool.query(`select letter from unnest($1::text[]) letter where ${grows}`, [
    letters.map((letter) => ofWriter(JSON.stringify(letter))),
  ]);
  expect(rows).toEqual([]);
});

/** Each makes the parser slow, a lexeme too long or a tsvector too large where its text is taken as it is. */
const hostileSeed = seedOf('hostile texts');
const { random, word, character, filled } = textGenerator(seededRandom(hostileSeed));
const hostile: Record<string, () => string> = {
  'words that grow in lower case': () => `${'Ⱥ'.repeat(1_020)} ${'İ'.repeat(1_020)} ${'Ⱦ'.repeat(682)}`,
  'one word': () => repeated('a'),
  'one word of letters that grow': () => repeated('Ⱥ'),
  ...Object.fromEntries(
    [
      'a_',
      '<!--',
      '~/',
      'a.',
      '/a',
      'a-',
      'a@',
      '1.',
      '-1e',
      '<a ',
      '&#',
      'http://',
      'a.b/',
      '://',
      'a.bc/d?',
      '<?',
    ].map((part) => [`repeated ${part}`, () => repeated(part)]),
  ),
  ...Object.fromEntries(
    [...'!"$\'()*,;[]^`{|}\t\n'].map((part) => [`repeated a${JSON.stringify(part)}`, () => repeated(`a${part}`)]),
  ),
  'short words': () => filled(() => `${word(2 + random(3))} `),
  'words of three letters': () => filled(() => `${word(3)} `),
  addresses: () => filled(() => `${word(2)}.${word(2)}/${word(3)} `),
  'compound words': () => filled(() => `a${word(1)}-b${word(1)}-c${word(1)} `),
  'words of one character': () => filled(() => `${String.fromCharCode(0x4e00 + random(20_900))} `),
  'words of two letters': () => filled(() => `${String.fromCharCode(0x100 + random(0x180), 0x100 + random(0x180))} `),
  'any characters': () => filled(character),
};

test.each(Object.entries(hostile))(
  `a text of 256 KB is indexed and found: %s (seed ${hostileSeed})`,
  async (_, make) => {
    const text = ofWriter(JSON.stringify(`treasure ${make()}`))!;
    for (const language of ['simple', 'english', 'turkish']) {
      // A statement that takes 10 s is cancelled.
      const { rows } = await pool.query<{ found: boolean }>(
        `select to_tsvector($1::regconfig, $2) @@ websearch_to_tsquery($1::regconfig, 'treasure') as found`,
        [language, text],
      );
      expect(rows).toEqual([{ found: true }]);
    }
  },
);

test('the languages are configurations of Postgres', async () => {
  const { rows } = await pool.query<{ cfgname: string }>('select cfgname from pg_ts_config');
  expect(searchLanguages.filter((language) => !rows.some(({ cfgname }) => cfgname === language))).toEqual([]);
});

test.each([
  ['wood oven', 'wood oven'],
  ['wood -oven or "red  wine"', 'wood -oven or "red  wine"'],
  ['e-mail', '"e mail"'],
  ['-e-mail now', '-"e mail" now'],
  ['ann@example.org', '"ann example org"'],
  ['"e-mail now"', '"e mail now"'],
  ['3.14', '"3 14"'],
  ['end.', 'end'],
  ['- . /', '  '],
  ['', ''],
])('the search %s is taken as %s', (search, words) => {
  expect(searchWords(search)).toBe(words);
});
