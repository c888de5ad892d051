import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLogger } from '@granary/shared/logger';
import { migrate, missingRepeatables, readRepeatables } from '@granary/shared/postgres/migrate';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { testDatabase } from '@granary/testing/database';

let pool: Pool;
let folder: string;
beforeEach(async () => {
  const { url } = await testDatabase();
  pool = createPool({ url, size: 2, applicationName: 'test', log: createLogger('test', 'silent') });
  folder = await mkdtemp(join(tmpdir(), 'granary-migrations-'));
  await mkdir(join(folder, 'repeatable'));
  await writeFile(
    join(folder, '0001_tables.sql'),
    'create table counted (n int not null); insert into counted values (7)',
  );
});
afterEach(async () => {
  await pool.end();
  await rm(folder, { recursive: true, force: true });
});

const release = (factor: number): Promise<void> =>
  writeFile(
    join(folder, 'repeatable', 'answer.sql'),
    `create or replace function answer() returns int language sql as 'select n * ${factor} from counted'`,
  );
const answer = async (): Promise<number> =>
  (await pool.query<{ answer: number }>('select answer() as answer')).rows[0]!.answer;
const missing = async () => missingRepeatables(pool, await readRepeatables(folder));

test('a text is applied after the tables, once, and again when it has changed', async () => {
  await release(1);
  await migrate(pool, folder);
  expect(await answer()).toBe(7);
  await migrate(pool, folder);
  await release(2);
  expect(await missing()).toEqual(['answer.sql']);
  await migrate(pool, folder);
  expect(await answer()).toBe(14);
  expect(await missing()).toEqual([]);
  const { rows } = await pool.query(`select number from migration where source = 'repeatable answer.sql' order by 1`);
  expect(rows).toEqual([{ number: 1 }, { number: 2 }]);
});

test('a copy of the release before that starts during an upgrade does not bring its text back', async () => {
  await release(1);
  await migrate(pool, folder);
  await release(2);
  await migrate(pool, folder);
  await release(1);
  expect(await missing()).toEqual([]);
  await migrate(pool, folder);
  expect(await answer()).toBe(14);
});

test('copies that start together apply a text once', async () => {
  await release(1);
  await Promise.all([migrate(pool, folder), migrate(pool, folder)]);
  expect(await answer()).toBe(7);
  const { rows } = await pool.query('select source from migration order by source');
  expect(rows).toEqual([{ source: 'repeatable answer.sql' }, { source: 'service' }]);
});
