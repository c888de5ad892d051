import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLogger } from '@granary/shared/logger';
import { createPool, row, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { databaseOf } from '@granary/shared/service/database-settings';
import { superuserUrl, testDatabase } from '@granary/testing/database';
import { openMultiplexer, readOne } from './support/multiplexer-fixture';

const log = createLogger('test', 'silent');
const role = `password_${randomBytes(6).toString('hex')}`;

let directory: string;
let admin: Pool;
let url: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'granary-password-'));
  const database = await testDatabase();
  admin = createPool({ url: superuserUrl(), size: 1, applicationName: 'test', log });
  url = Object.assign(new URL(database.url), { username: role, password: '' }).href;
});
afterAll(async () => {
  await admin.query(`drop owned by ${role}`);
  await admin.query(`drop role ${role}`);
  await admin.end();
  await rm(directory, { recursive: true, force: true });
});

const setPassword = async (file: string, verb: 'create' | 'alter', password: string) => {
  await admin.query(`${verb} role ${role} login password '${password}'`);
  await writeFile(file, `${password}\n`);
};
const drop = () =>
  admin.query(`select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = '${role}'`);

test('a password that changes in its file is used for the next connection of pools and of the multiplexer', async () => {
  const file = join(directory, 'password');
  await setPassword(file, 'create', 'first: / @ %');
  const database = databaseOf({ DATABASE_URL: url, DATABASE_PASSWORD_FILE: file });
  const pool = createPool({ ...database, size: 1, applicationName: 'test', log });
  const { multiplexer } = openMultiplexer(database.url, { ...database, size: 1 });
  const users = async () => [
    (await row<{ name: string }>(pool, sql`select current_user::text as name`))?.name,
    await readOne(multiplexer, 'select current_user::text'),
  ];
  try {
    expect(await users()).toEqual([role, role]);
    await setPassword(file, 'alter', 'second');
    await drop();
    expect(await users()).toEqual([role, role]);
    await writeFile(file, 'wrong');
    await drop();
    await expect(users()).rejects.toThrow('password authentication failed');
  } finally {
    await pool.end();
    await multiplexer.end();
  }
});

test('a password in the URL and in a file, and a file that cannot be read, are refused by name', () => {
  const withPassword = Object.assign(new URL(url), { password: 'x' }).href;
  const file = join(directory, 'missing');
  expect(() => databaseOf({ DATABASE_URL: withPassword, DATABASE_PASSWORD_FILE: file })).toThrow(
    'DATABASE_PASSWORD_FILE: the password is in DATABASE_URL already',
  );
  expect(() => databaseOf({ DATABASE_URL: url, DATABASE_PASSWORD_FILE: file })).toThrow(
    'DATABASE_PASSWORD_FILE: the file cannot be read (ENOENT)',
  );
});
