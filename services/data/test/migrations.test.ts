import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { migrate } from '@granary/shared/postgres/migrate';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { testDatabase } from '@granary/shared/testing/database';
import { log } from './support/data-service';

const migrations = join(__dirname, '..', 'migrations');

describe('migrations of what is there already', () => {
  let pool: Pool;
  let folder: string;
  beforeEach(async () => {
    pool = createPool({ url: (await testDatabase()).url, size: 2, applicationName: 'test', log });
    folder = await mkdtemp(join(tmpdir(), 'granary-migrations-'));
  });
  afterEach(async () => {
    await pool.end();
    await rm(folder, { recursive: true, force: true });
  });

  const migrateUpTo = async (last: string) => {
    await cp(migrations, folder, {
      recursive: true,
      filter: (file) => file === migrations || file <= join(migrations, `${last}~`),
    });
    await migrate(pool, folder);
  };

  test('documents and heads that have heights have the same ordinals, and commits none', async () => {
    await migrateUpTo('0004');
    await pool.query(`
      insert into application (app_id, name, created_at, updated_at) values ('a', 'A', now(), now());
      insert into head (app_number, height, hash) values (1, 2, '');
      create schema a_1;
      create table a_1.commits (height bigint primary key);
      insert into a_1.commits values (1), (2);
      create table a_1.c_7 (id text primary key, height bigint not null, place int not null);
      insert into a_1.c_7 values ('x', 2, 0);
      create table a_1.h_7 (id text primary key, height bigint not null, place int not null);
      insert into a_1.h_7 values ('x', 1, 0);
      create table a_1.v_3 (pos bigint primary key, body text)`);
    await migrate(pool, migrations);
    const found = await pool.query(`
      select 'head' as of, height, ordinal from head union all
      select 'commits', height, ordinal from a_1.commits union all
      select id, null, ordinal from a_1.c_7 union all
      select id, null, ordinal from a_1.h_7 order by 1, 2, 3`);
    expect(found.rows).toEqual([
      { of: 'commits', height: 1n, ordinal: null },
      { of: 'commits', height: 2n, ordinal: null },
      { of: 'head', height: 2n, ordinal: 2n },
      { of: 'x', height: null, ordinal: 1n },
      { of: 'x', height: null, ordinal: 2n },
    ]);
  });
});
