import { createLogger } from '@granary/shared/logger';
import { pipeline } from '@granary/shared/postgres/pipeline';
import { createPool, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql, trusted } from '@granary/shared/postgres/sql';
import { testDatabase } from '@granary/testing/database';
import { size } from '@granary/testing/size';

/** More than a connection keeps. */
const shapes = size({ run: 280, long: 400 });
/** More than it takes for a statement to get a name. */
const rounds = 18;
const connections = 2;

/** One of the shapes, with a value. */
const shape = (at: number, value: number) => sql`select ${value}::int4 + ${trusted(String(at))} as shape`;
/** It fails for the value 0. */
const fallible = (at: number, value: number) => sql`select ${trusted(String(at))} / ${value}::int4 as fallible`;

describe('statements of pools that are repeated, of more shapes than a connection keeps prepared', () => {
  let pool: Pool;
  let held: Connection[];
  beforeAll(async () => {
    const { url } = await testDatabase();
    pool = createPool({ url, size: connections, applicationName: 'test', log: createLogger('test', 'silent') });
  });
  beforeEach(async () => {
    held = await Promise.all(Array.from({ length: connections }, () => pool.connect()));
  });
  afterEach(() => held.forEach((connection) => connection.release()));
  afterAll(() => pool.end());

  const prepared = async (connection: Connection) => {
    const { rows: found } = await connection.query<{ statement: string }>(
      'select statement from pg_prepared_statements',
    );
    return new Set(found.map(({ statement }) => statement));
  };
  const expectLatest = async (connection: Connection, texts: readonly string[]) => {
    const found = await prepared(connection);
    expect(found.size).toBeLessThanOrEqual(256);
    expect(texts.filter((text) => !found.has(text))).toEqual([]);
  };
  const latest = Array.from({ length: 100 }, (_, at) => shape(shapes - 1 - at, 0).compile().text);

  test('each connection has the most recently used prepared and no more, and all answers are right', async () => {
    for (let round = 0; round < rounds; round++) {
      for (let at = 0; at < shapes; at++) {
        const found = await Promise.all(held.map((connection) => rows(connection, shape(at, round))));
        expect(found).toEqual(held.map(() => [{ shape: at + round }]));
      }
    }
    for (const connection of held) await expectLatest(connection, latest);
    const [connection] = held;
    await rows(connection!, shape(0, 1));
    expect(await prepared(connection!)).toContain(shape(0, 1).compile().text);
  });

  test('the same holds for pipelines, also those that fail on the way, and beside single statements', async () => {
    for (let round = 0; round < rounds; round++) {
      for (let at = 0; at < shapes; at += 8) {
        const places = Array.from({ length: 8 }, (_, n) => at + n);
        const work = held.map(async (connection) => {
          const steps = places.map((place) => shape(place, round));
          const failing = pipeline(connection, [steps[0]!, fallible(at, 0), ...steps.slice(1)]);
          await expect(failing).rejects.toMatchObject({ code: '22012' });
          const answers = await pipeline(connection, steps);
          expect(answers.map((answer) => Number(answer.rows[0]![0]))).toEqual(places.map((n) => n + round));
          expect(await rows(connection, shape(at + 3, round))).toEqual([{ shape: at + 3 + round }]);
        });
        await Promise.all(work);
      }
    }
    for (const connection of held) await expectLatest(connection, latest);
  });

  test('a statement that fails can be executed again on its connection', async () => {
    const [connection] = held;
    for (let at = 0; at < 2 * rounds; at++) {
      await expect(rows(connection!, fallible(7, 0))).rejects.toMatchObject({ code: '22012' });
      expect(await rows(connection!, fallible(7, 1))).toEqual([{ fallible: 7 }]);
    }
    expect(await rows(connection!, shape(7, 1))).toEqual([{ shape: 8 }]);
  });
});
