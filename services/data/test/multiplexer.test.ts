import { Pool } from 'pg';
import { fromPostgres, isConnectionError, sqlState } from '@granary/shared/postgres/errors';
import type { Multiplexer, MultiplexerOptions } from '../src/postgres/multiplexer';
import type { Row } from '../src/postgres/rows';
import type { StatementValue } from '@granary/shared/postgres/wire/values';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { allTexts, oneText, openMultiplexer, readOne, run, said } from './support/multiplexer-fixture';

const open: Multiplexer[] = [];
let url: string;
let pool: Pool;

beforeAll(async () => {
  url = (await testDatabase()).url;
  // Every value as the text that Postgres sends, to compare with.
  pool = new Pool({ connectionString: url, max: 4, types: { getTypeParser: () => (text: string) => text } });
});

afterEach(async () => {
  await Promise.all(open.splice(0).map((multiplexer) => multiplexer.end()));
});

afterAll(() => pool.end());

function multiplexer(options: Partial<MultiplexerOptions> = {}): Multiplexer {
  const opened = openMultiplexer(url, options).multiplexer;
  open.push(opened);
  return opened;
}

/** What a pool answers, in the shape of `allTexts`. */
async function fromPool(text: string, values: readonly StatementValue[]) {
  return (await pool.query<(string | null)[]>({ text, values: [...values], rowMode: 'array' })).rows;
}

test('every kind of value goes there and comes back as through a pool', async () => {
  const reader = multiplexer();
  const awkward = ['', 'NULL', 'a"b\\c{}, ', "it's", 'ä€😀\u2028', '\u0001', ' x '];
  const values: StatementValue[] = [awkward.join('|'), 17, -0.5, 2n ** 62n, true, false, null, [...awkward, null], []];
  const text =
    'select $1::text, $2::int, $3::float8, $4::int8, $5::bool, $6::bool, $7::text, $8::text[], $9::text[], to_json($8::text[])';
  const expected = await fromPool(text, values);
  expect(JSON.parse(expected[0]![9]!)).toEqual([...awkward, null]);
  expect(await reader.read(text, values, allTexts(10))).toEqual(expected);
  expect(await reader.read('select', [], allTexts(0))).toEqual([[]]);
  expect(await reader.read('', [], allTexts(0))).toEqual([]);
  expect(await reader.read('select 1 where false', [], allTexts(1))).toEqual([]);
  const wide = Array.from({ length: 100 }, (_, at) => `${at}`);
  expect(await reader.read(`select ${wide.join(',')}`, [], allTexts(100))).toEqual([wide]);
});

test('a row gives lengths, views and copies of its columns, and refuses what is not there', async () => {
  const target = Buffer.alloc(8, '-');
  const seen = await multiplexer().read<unknown[]>(`select 'äb', null, ''`, [], {
    row: (row: Row) => {
      expect([0, 1, 2].map((at) => row.byteLength(at))).toEqual([3, 0, 0]);
      expect([0, 1, 2].map((at) => row.isNull(at))).toEqual([false, true, false]);
      expect([0, 1, 2].map((at) => row.bytes(at).toString())).toEqual(['äb', '', '']);
      expect([0, 1, 2].map((at) => row.text(at))).toEqual(['äb', '', '']);
      expect(row.copy(0, target, 4)).toBe(3);
      expect(row.copy(1, target, 0)).toBe(0);
      expect(() => row.copy(0, target, 6)).toThrow(RangeError);
      for (const column of [3, -1, NaN]) expect(() => row.text(column)).toThrow(RangeError);
    },
    end: () => [target.toString()],
  });
  expect(seen).toEqual(['----äb-']);
});

const seed = seedOf('shared/multiplexer');
test(`many statements of the seed ${seed} at once get the answers of a pool, errors included`, async () => {
  const random = seededRandom(seed);
  const count = size({ run: 700, long: 2_000 });
  const reader = multiplexer({ size: 3 });
  const word = () =>
    Buffer.from(Array.from({ length: Math.floor(random() * 20) }, () => random() * 256)).toString('base64');
  const number = () => Math.floor(random() * 50);
  const kinds: [string, number, () => StatementValue[]][] = [
    ['select $1::text, $2::int * 2', 2, () => [word(), number()]],
    ['select i, repeat($1, i) from generate_series(1, $2::int) i', 2, () => [word(), number()]],
    ['select repeat($1, $2::int * 200)', 1, () => [word(), number()]],
    ['select 100 / $1::int', 1, () => [number() % 4]],
    ['select i, 10 / (i - $1::int) from generate_series(1, 30) i', 2, () => [number()]],
    ['select $1::int', 1, () => [random() < 0.5 ? word() : number()]],
    ['select nothing from nowhere', 1, () => []],
    ['select $1::json', 1, () => [word()]],
    ['select unnest($1::text[]), $2::bool', 2, () => [[word(), null, word()], number() < 25]],
  ];
  const statements = Array.from({ length: count }, () => {
    const [text, columns, values] = kinds[Math.floor(random() * kinds.length)]!;
    // Some are so rare that they have no name.
    return { text: random() < 0.2 ? `${text} -- ${word()}` : text, columns, values: values() };
  });
  const outcome = (answer: Promise<unknown>) => answer.then((rows) => ({ rows }), said);
  const [expected, got] = await Promise.all([
    Promise.all(statements.map(({ text, values }) => outcome(fromPool(text, values)))),
    Promise.all(statements.map(({ text, values, columns }) => outcome(reader.read(text, values, allTexts(columns))))),
  ]);
  expect(got).toEqual(expected);
  const failed = got.filter((one) => 'code' in one).length;
  expect(failed).toBeGreaterThan(0.1 * count);
  expect(failed).toBeLessThan(0.9 * count);
});

test('an error has all that Postgres says of it', async () => {
  await run(url, 'create table numbers (n int constraint small check (n < 10))');
  const text = `with bad as (select 'x' as a) select 1 / length($1::text) from bad`;
  const error: unknown = await multiplexer()
    .read(text, [''], allTexts(1))
    .catch((thrown: unknown) => thrown);
  expect(said(error)).toEqual(said(await fromPool(text, ['']).catch((thrown: unknown) => thrown)));
  expect(sqlState(error)).toBe('22012');
  const refused: unknown = await readOne(multiplexer(), `select $1`, ['\0']).catch((thrown: unknown) => thrown);
  expect(fromPostgres(refused)).toMatchObject({ code: 'INVALID_ARGUMENT' });
});

test('a reader that throws, a value that cannot be written and a statement that fails harm no other', async () => {
  const reader = multiplexer({ size: 1 });
  const thrower = (at: 'row' | 'end') => ({
    row: () => {
      if (at === 'row') throw new Error('in row');
    },
    end: () => {
      throw new Error('in end');
    },
  });
  const series = 'select i from generate_series(1, 5) i';
  const answers = await Promise.allSettled([
    readOne(reader, `select 'before'`),
    reader.read(series, [], thrower('row')),
    readOne(reader, `select 1 / $1::int`, [0]),
    reader.read(series, [], thrower('end')),
    readOne(reader, 'select $1::text', [{} as string]),
    readOne(reader, `select 'a\0b'`),
    readOne(reader, 'select 1', new Array<null>(70_000).fill(null)),
    readOne(reader, `select 'after'`),
  ]);
  expect(
    answers.map((answer) => (answer.status === 'fulfilled' ? answer.value : (answer.reason as Error).message)),
  ).toEqual([
    'before',
    'in row',
    'division by zero',
    'in end',
    'a parameter of a statement has a type that cannot be sent',
    'a statement contains a NUL character',
    'a statement has more than 65535 parameters',
    'after',
  ]);
  // The connections of earlier tests may take a moment to end.
  await eventually(async () => (await backends()) === 1);
});

test('rows of 4 MiB and an answer of 32 MiB come whole', async () => {
  const reader = multiplexer({ size: 1 });
  const mebibyte = 1024 * 1024;
  const lengths = await reader.read<number[]>(
    `select repeat(i::text, ${4 * mebibyte}) from generate_series(1, 8) i`,
    [],
    (() => {
      const found: number[] = [];
      return {
        row: (row: Row) => {
          const bytes = row.bytes(0);
          expect(bytes.equals(Buffer.alloc(4 * mebibyte, String(found.length + 1)))).toBe(true);
          found.push(bytes.length);
        },
        end: () => found,
      };
    })(),
  );
  expect(lengths).toEqual(Array.from({ length: 8 }, () => 4 * mebibyte));
  const value = 'ä'.repeat(4 * mebibyte);
  expect((await readOne(reader, 'select $1', [value])) === value).toBe(true);
});

test('notices, changed parameters and notifications in between are passed over', async () => {
  await run(
    url,
    `create function noisy(n int) returns int language plpgsql as
       $$ begin raise notice 'noise %', n; perform set_config('application_name', 'multiplexer-' || n, false); return n; end $$`,
  );
  const reader = multiplexer({ size: 1 });
  await readOne(reader, 'listen lane_test');
  const numbers = Array.from({ length: 200 }, (_, at) => at);
  const [answers] = await Promise.all([
    Promise.all(numbers.map((n) => readOne(reader, 'select noisy($1::int)', [n]))),
    run(url, ...numbers.map((n) => `notify lane_test, '${n}'`)),
  ]);
  expect(answers).toEqual(numbers.map(String));
  expect(await readOne(reader, `select 'still there'`)).toBe('still there');
});

test('the statement timeout ends one statement, those around it are answered', async () => {
  const reader = multiplexer({ size: 1, statementTimeoutMs: limitMs(500) });
  const slow = readOne(reader, 'select pg_sleep(3600)::text');
  const others = Array.from({ length: 20 }, (_, at) => readOne(reader, 'select $1::text', [at]));
  const error: unknown = await slow.catch((thrown: unknown) => thrown);
  expect(sqlState(error)).toBe('57014');
  expect(fromPostgres(error)).toMatchObject({ code: 'DEADLINE_EXCEEDED' });
  expect(await Promise.all(others)).toEqual(Array.from({ length: 20 }, (_, at) => String(at)));
});

test('a prepared statement whose table has changed, or that is gone, is prepared again', async () => {
  await run(url, 'create table changing (a text)', `insert into changing values ('one')`);
  const reader = multiplexer({ size: 1 });
  const read = (columns: number) => reader.read('select * from changing', [], allTexts(columns));
  const prepared = () =>
    readOne(reader, `select count(*) from pg_prepared_statements where statement like '%changing'`);
  for (let i = 0; i < 20; i++) expect(await read(1)).toEqual([['one']]);
  expect(await prepared()).toBe('1');
  await run(url, `alter table changing add b text default 'two'`);
  expect(await Promise.all(Array.from({ length: 10 }, () => read(2)))).toEqual(
    Array.from({ length: 10 }, () => [['one', 'two']]),
  );
  await readOne(reader, 'deallocate all');
  expect(await prepared()).toBe('0');
  expect(await Promise.all(Array.from({ length: 10 }, () => read(2)))).toEqual(
    Array.from({ length: 10 }, () => [['one', 'two']]),
  );
  expect(await prepared()).toBe('1');
});

test('an error that preparing again does not cure is thrown', async () => {
  await run(
    url,
    `create function unsupported(n int) returns int language plpgsql as
       $$ begin if n > 0 then raise 'never' using errcode = '0A000'; end if; return n; end $$`,
  );
  const reader = multiplexer({ size: 1 });
  const call = (n: number) => readOne(reader, 'select unsupported($1)', [n]);
  for (let i = 0; i < 20; i++) expect(await call(0)).toBe('0');
  const answers = await Promise.allSettled([call(1), call(0), call(1), call(0)]);
  expect(answers.map((answer) => (answer.status === 'fulfilled' ? answer.value : sqlState(answer.reason)))).toEqual([
    '0A000',
    '0',
    '0A000',
    '0',
  ]);
});

test('a multiplexer writes nothing, and no statement leaves a transaction behind', async () => {
  await run(url, 'create table untouched (a text)');
  const reader = multiplexer({ size: 1 });
  const error: unknown = await readOne(reader, `insert into untouched values ('x')`).catch((thrown: unknown) => thrown);
  expect(sqlState(error)).toBe('25006');
  expect(await run(url, 'select count(*)::int as count from untouched')).toEqual([{ count: 0 }]);
  await readOne(reader, 'begin read write');
  await eventually(async () => (await backends()) === 0 || undefined);
  const again: unknown = await readOne(reader, `insert into untouched values ('x')`).catch((thrown: unknown) => thrown);
  expect(sqlState(again)).toBe('25006');
});

test('statements that are slow together are spread over the connections that there are', async () => {
  const reader = multiplexer({ size: 2 });
  await readOne(reader, 'select 1');
  const slow = Array.from({ length: 8 }, () => readOne(reader, 'select pg_sleep(0.2), pg_backend_pid()'));
  await eventually(async () => (await backends()) === 2 || undefined);
  await Promise.all(slow);
  await eventually(async () => (await backends()) === 2);
});

test('short statements go round a long one that says so', async () => {
  const reader = multiplexer({ size: 2 });
  const both = [1, 2].map(() => readOne(reader, 'select pg_sleep(0.2)'));
  await eventually(async () => (await backends()) === 2 || undefined);
  await Promise.all(both);
  const ended: string[] = [];
  // It takes until the short ones have been answered.
  const holder = await pool.connect();
  await holder.query('select pg_advisory_lock(1)');
  const long = reader.read('select pg_advisory_xact_lock(1)', [], oneText(), 32).then(() => ended.push('long'));
  const short = Array.from({ length: 20 }, () => readOne(reader, 'select 1').then(() => ended.push('short')));
  await Promise.all(short).finally(() => holder.query('select pg_advisory_unlock(1)'));
  holder.release();
  await long;
  expect(ended).toEqual([...Array<string>(20).fill('short'), 'long']);
});

test('what is too much is refused, what fits is answered', async () => {
  const reader = multiplexer({ size: 1, window: 2, waitingMax: 5 });
  const answers = await Promise.allSettled(
    Array.from({ length: 8 }, (_, at) => readOne(reader, 'select $1::text', [at])),
  );
  expect(answers.slice(0, 5)).toEqual(
    Array.from({ length: 5 }, (_, at) => ({ status: 'fulfilled', value: String(at) })),
  );
  for (const answer of answers.slice(5)) {
    expect(answer).toMatchObject({ status: 'rejected', reason: { code: 'UNAVAILABLE', reason: 'OVERLOADED' } });
  }
});

test('the end waits for what has been asked for, refuses more and leaves no connection', async () => {
  const { multiplexer: reader, logged } = openMultiplexer(url, { window: 2 });
  const asked = Array.from({ length: 10 }, (_, at) => readOne(reader, `select $1::text || pg_sleep(0.02)`, [at]));
  let answered = 0;
  for (const answer of asked) void answer.then(() => answered++);
  const ended = reader.end();
  const late: unknown = await readOne(reader, 'select 1').catch((thrown: unknown) => thrown);
  expect(isConnectionError(late)).toBe(true);
  await ended;
  expect(answered).toBe(10);
  expect(await Promise.all(asked)).toEqual(Array.from({ length: 10 }, (_, at) => String(at)));
  await eventually(async () => (await backends()) === 0 || undefined);
  expect(logged).toEqual([]);
  await openMultiplexer(url).multiplexer.end();
});

test('however many statements there are, a connection has the latest of them prepared and no more', async () => {
  const reader = multiplexer({ size: 1, waitingMax: 10_000 });
  // Of these it keeps 256, once they have been used 17 times.
  const texts = size({ run: 280, long: 400 });
  const answers = await Promise.all(
    Array.from({ length: 17 * texts }, (_, at) => readOne(reader, `select ${at % texts} as bounded`)),
  );
  expect(answers).toEqual(answers.map((_, at) => String(at % texts)));
  const count = Number(await readOne(reader, 'select count(*) from pg_prepared_statements'));
  expect(count).toBe(256);
  const prepared = (text: string) =>
    readOne(reader, `select count(*) from pg_prepared_statements where statement = '${text}'`);
  expect(await prepared(`select ${texts - 1} as bounded`)).toBe('1');
  expect(await prepared('select 1 as bounded')).toBe('0');
  expect(await readOne(reader, 'select 1 as bounded')).toBe('1');
  expect(await prepared('select 1 as bounded')).toBe('1');
});

test('the connections have the settings that were asked for', async () => {
  const reader = multiplexer({ size: 1, settings: { enable_sort: 'off', plan_cache_mode: 'force_generic_plan' } });
  expect(await readOne(reader, 'show enable_sort')).toBe('off');
  expect(await readOne(reader, 'show plan_cache_mode')).toBe('force_generic_plan');
  expect(await readOne(reader, 'show default_transaction_read_only')).toBe('on');
  expect(await readOne(reader, 'show enable_seqscan')).toBe('on');
});

/** The connections of lanes to the test's database. */
async function backends(): Promise<number> {
  const { rows } = await pool.query<{ count: string }>(
    `select count(*) as count from pg_stat_activity where application_name like 'multiplexer%' and datname = current_database()`,
  );
  return Number(rows[0]!.count);
}
