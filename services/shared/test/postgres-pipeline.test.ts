import { boolArray, byteaArray, int4Array, int8Array, textArray } from '@granary/shared/postgres/wire/binary';
import { copyInto } from '@granary/shared/postgres/copy';
import { createLogger } from '@granary/shared/logger';
import { pipeline } from '@granary/shared/postgres/pipeline';
import { createPool, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql, trusted } from '@granary/shared/postgres/sql';
import { pipelinedTransaction, transaction } from '@granary/shared/postgres/transaction';
import { testDatabase } from '@granary/testing/database';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';

const oddTexts = [
  '',
  ' ',
  '\\',
  '\\N',
  '\\.',
  '\n\\.\n',
  '\t',
  '\r\n',
  '"',
  "'",
  '{}',
  'NULL',
  'é€😀',
  '\u0001\u007f\u0080\ufffd\ufffe',
  'long enough for a copy instead of a loop',
];

const seed = seedOf('shared/postgres-pipeline');

/** Texts of a few odd pieces each. */
function randomTexts(count: number): string[] {
  const random = seededRandom(seed);
  const below = (bound: number) => Math.floor(random() * bound);
  return Array.from({ length: count }, () =>
    Array.from({ length: below(8) }, () => oddTexts[below(oddTexts.length)]).join(''),
  );
}

describe('steps that are sent in one go', () => {
  let pool: Pool;
  beforeAll(async () => {
    const { url } = await testDatabase();
    pool = createPool({ url, size: 2, applicationName: 'test', log: createLogger('test', 'silent') });
  });
  afterAll(() => pool.end());

  test(`a COPY of odd texts of the seed ${seed}, numbers and instants in many messages stores each value as it was`, async () => {
    await pool.query(`create table copied (place int4 primary key, text text, bytes text, json jsonb, number int8,
                        flag bool, at timestamptz)`);
    const large = 'x\\\n'.repeat(150_000);
    const given = [...oddTexts, large, ...randomTexts(5_000)].map((text, place) => ({
      place,
      text: place % 7 === 3 ? null : text,
      bytes: text,
      json: place % 5 === 2 ? null : JSON.stringify({ text: text.replaceAll('\ufffd', ''), place }),
      number: place % 2 === 0 ? place * 1_000_003_000 : -place * 4_294_967_296 - 1,
      flag: place % 3 === 0,
      at: new Date(place % 2 === 0 ? -1_000_000_007 * place : 1_763_683_200_123 + place),
    }));
    const columns = { names: sql`place, text, bytes, json, number, flag, at`, count: 7 };
    const copy = await copyInto(trusted('copied'), columns, given, (writer, value) => {
      writer.int4Field(value.place);
      writer.textField(value.text);
      writer.textField(Buffer.from(value.bytes));
      if (value.json === null) writer.nullField();
      else if (value.place % 2 === 0) writer.jsonbField(value.json);
      else writer.jsonbField(Buffer.from(`[${value.json}]`), 1, Buffer.byteLength(value.json) + 1);
      writer.int8Field(value.number);
      writer.boolField(value.flag);
      writer.instantField(value.at);
    });
    expect(copy.messages.length).toBeGreaterThan(2);
    await transaction(pool, (tx) => pipeline(tx, [copy]));

    const found = await rows<{ json: string | null; number: bigint }>(pool, sql`select * from copied order by place`);
    const read = found.map(({ json, number, ...rest }) => ({
      ...rest,
      json: json === null ? null : (JSON.parse(json) as object),
      number: Number(number),
    }));
    expect(read).toEqual(
      given.map((value) => ({ ...value, json: value.json === null ? null : (JSON.parse(value.json) as object) })),
    );
  });

  test(`arrays of the seed ${seed} arrive as they are, with nulls, bytes and nothing in them`, async () => {
    const texts = [null, ...oddTexts, ...randomTexts(300)];
    const { answer } = (await row<{ answer: string }>(
      pool,
      sql`select json_build_object('texts', ${textArray(texts)}::text[],
            'buffers', ${textArray(texts.map((text) => (text === null ? null : Buffer.from(text))))}::text[],
            'bytes', array(select encode(b, 'hex') from unnest(${byteaArray([Buffer.alloc(0), Buffer.from([0, 92, 255])])}::bytea[]) b),
            'large', ${int8Array([0, -1, 4_294_967_296, -4_294_967_297, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER])}::int8[],
            'small', ${int4Array([0, -1, 2_147_483_647, -2_147_483_648])}::int4[],
            'flags', ${boolArray([true, false])}::bool[], 'none', ${textArray([])}::text[]) as answer`,
    ))!;
    expect(JSON.parse(answer)).toEqual({
      texts,
      buffers: texts,
      bytes: ['', '005cff'],
      large: [0, -1, 4_294_967_296, -4_294_967_297, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER],
      small: [0, -1, 2_147_483_647, -2_147_483_648],
      flags: [true, false],
      none: [],
    });
  });

  test('the first that fails ends them, whatever it is, and the connection goes on with the same statements', async () => {
    await pool.query('create table steps (id int4 primary key, text text)');
    const insert = (id: number) => sql`insert into steps (id, text) values (${id}, ${'text'})`;
    const copy = (ids: number[]) =>
      copyInto(trusted('steps'), { names: sql`id, text`, count: 2 }, ids, (writer, id) => {
        writer.int4Field(id);
        writer.textField('x'.repeat(100_000));
      });
    const noTable = await copyInto(
      trusted('missing'),
      { names: sql`id`, count: 1 },
      Array(9).fill(7),
      (writer, id: number) => writer.int4Field(id),
    );
    const duplicate = { code: '23505', constraint: 'steps_pkey' };
    const client = await pool.connect();
    // Often enough that the statement is prepared under a name on the way, in a pipeline that fails.
    for (let round = 0; round < 20; round++) {
      const first = round * 10;
      const last = insert(first + 1);
      await expect(pipeline(client, [insert(first), insert(first), last])).rejects.toMatchObject({
        ...duplicate,
        detail: `Key (id)=(${first}) already exists.`,
      });
      await expect(pipeline(client, [await copy([first, first + 2, first]), last])).rejects.toMatchObject({
        ...duplicate,
        detail: `Key (id)=(${first}) already exists.`,
      });
      await expect(pipeline(client, [noTable, last])).rejects.toMatchObject({ code: '42P01' });
      const answers = await pipeline(client, [
        insert(first),
        await copy([first + 3, first + 4]),
        sql`select id from steps order by id desc`,
      ]);
      expect(answers.map(({ completion }) => completion).slice(0, 2)).toEqual(['INSERT 0 1', 'COPY 2']);
      expect(answers[2]!.rows[0]).toEqual([String(first + 4)]);
    }
    client.release();
    const stored = await rows<{ id: number }>(pool, sql`select id from steps order by id`);
    expect(stored.map(({ id }) => id)).toEqual(
      Array.from({ length: 20 }, (_, n) => [n * 10, n * 10 + 3, n * 10 + 4]).flat(),
    );
  });

  test('a value that cannot be sent is refused before anything is, and the transaction is undone', async () => {
    await pool.query('create table undone (id int4)');
    const insert = sql`insert into undone values (${1})`;
    const written = pipelinedTransaction(pool, [insert], () =>
      Promise.resolve({ result: undefined, last: [insert, sql`select ${{ an: 'object' }}`] }),
    );
    await expect(written).rejects.toThrow(TypeError);
    expect(await rows(pool, sql`select from undone`)).toEqual([]);
  });

  test('what travels with COMMIT is stored with it or not at all', async () => {
    await pool.query('create table whole (id int4 unique deferrable initially deferred)');
    const insert = (id: number) => sql`insert into whole values (${id})`;
    const write = (last: number[]) =>
      pipelinedTransaction(pool, [sql`select 41 + ${1}::int4`], (_, { rows: [answer] }) =>
        Promise.resolve({ result: answer![0], last: last.map(insert) }),
      );
    expect(await write([1, 2])).toBe('42');
    // The first is violated in the statement, the second by COMMIT itself.
    await expect(write([3, 2 ** 31])).rejects.toMatchObject({ code: '22003' });
    await expect(write([4, 1])).rejects.toMatchObject({ code: '23505' });
    expect((await rows<{ id: number }>(pool, sql`select id from whole order by id`)).map(({ id }) => id)).toEqual([
      1, 2,
    ]);
  });
});
