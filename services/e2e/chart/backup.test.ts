import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { superuserUrl } from '@granary/testing/database';
import { describeWith, pythonForTests } from '@granary/testing/stack';
import { findPostgresTools } from '@granary/stack/tools/python-tools';
import { databaseServices } from '@granary/local/start/constellation';
import { newApp, send } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { describeWithPsql, serviceRoles, withClient } from '../support/service-roles';
import { chart } from './chart';

const run = promisify(execFile);
const waiting = Object.fromEntries(databaseServices.map((service) => [service, { MIGRATIONS: 'wait' }]));

const dropDatabases = (names: readonly string[]): Promise<void> =>
  withClient(superuserUrl(), async (client) => {
    for (const name of names) await client.query(`drop database if exists ${name} with (force)`);
  });

const describeWithTools = describeWith(describe, 'python') === describe ? describeWithPsql(describe) : describe.skip;

describeWithTools('the backup of the chart', () => {
  const roles = serviceRoles();
  const names = databaseServices.map(roles.role);
  let folder: string;
  let env: NodeJS.ProcessEnv;

  beforeAll(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'granary-chart-backup-'));
    const { hostname, port, password } = new URL(roles.ownerUrls.data);
    for (const service of databaseServices) {
      await mkdir(path.join(folder, `postgres-${service}`));
      await writeFile(path.join(folder, `postgres-${service}/password`), password);
    }
    await mkdir(path.join(folder, 'backups'));
    env = {
      PATH: `${await findPostgresTools(await pythonForTests())}:${process.env['PATH']}`,
      PGHOST: hostname,
      PGPORT: port,
      PGSSLMODE: 'prefer',
      PREFIX: roles.role('data').replace(/_data$/, ''),
      KEEP: '1',
      SECRETS: folder,
      BACKUPS: path.join(folder, 'backups'),
    };
    await roles.prepare();
    for (const service of databaseServices) await roles.migrate(service);
  });

  afterAll(async () => {
    await dropDatabases(names);
    await rm(folder, { recursive: true, force: true });
  });

  const start = () => {
    const finance = { MIGRATIONS: 'wait', KEY_FILE: path.join(folder, 'seed'), KEY_FILE_CREATE: 'true' };
    return startGranary('wire', { databaseUrls: roles.urls, settings: { ...waiting, finance } });
  };
  const script = async (name: 'backup' | 'restore', settings: Record<string, string> = {}) =>
    (await run('sh', [path.join(chart, `files/${name}.sh`)], { env: { ...env, ...settings } })).stdout;

  test('what was stored before it is there after a restore into new databases, with the rights of the roles', async () => {
    const before = await start();
    const app = await newApp(before);
    await app.store('docs', [{ id: '1', text: 'Grüße' }]);
    const balance = await app.call('GET', `/api/apps/${app.appId}/wallet`);
    const backedUp = await script('backup');
    await app.store('docs', [{ id: '2' }]);
    await before.stop();
    expect(backedUp).toMatch(/^finance: \d+ bytes\n[^]+data: \d+ bytes\nbackup-\S+ is complete\n$/);

    await expect(script('restore')).rejects.toThrow(/has \d+ tables: restore into empty databases/);
    await dropDatabases(names);
    await roles.prepare();
    const other = { FROM: 'backup-2020-01-01T00-00-00Z' };
    await expect(script('restore', other)).rejects.toThrow(/there is no data.dump in \S+\/backup-2020-01-01T00-00-00Z/);
    expect(await script('restore')).toMatch(/data is restored\n[^]+finance is restored\n$/);
    for (const service of databaseServices) await roles.migrate(service);

    const after = await start();
    try {
      const headers = { key: app.key };
      const body = { root: `${app.appId}::docs` };
      const listed = await send(after.url, 'POST', '/list', { ...headers, body });
      expect(listed.body).toMatchObject({ total: 1, records: [{ id: '1', text: 'Grüße' }] });
      const stored = await send(after.url, 'POST', '/store', { ...headers, body: { ...body, data: [{ id: '3' }] } });
      expect(stored.status).toBe(202);
      const wallet = await send(after.url, 'GET', `/api/apps/${app.appId}/wallet`, headers);
      expect([wallet.status, wallet.body['address']]).toEqual([200, balance.body['address']]);
    } finally {
      await after.stop();
    }
  });

  test('a retry of the Job that restores goes on where a pod was lost, with the same backup; another Job is refused', async () => {
    const [name] = await readdir(path.join(folder, 'backups'));
    const first = { JOB_UID: 'a0b1', FROM: 'latest' };
    await dropDatabases(names);
    await roles.prepare();
    expect(await script('restore', first)).toMatch(/data is restored\n[^]+finance is restored\n$/);

    const lost = ['tasks', 'finance'] as const;
    await dropDatabases(lost.map(roles.role));
    await roles.prepare();
    const newer = path.join(folder, 'backups/backup-2999-01-01T00-00-00Z');
    await mkdir(newer);
    try {
      const went = await script('restore', first);
      expect(went).toContain(`restoring ${path.join(folder, 'backups', name!)}\n`);
      expect(went).toMatch(
        /data was restored before\npayments was restored before\nblobs was restored before\ntasks is restored\nfinance is restored\n$/,
      );
    } finally {
      await rm(newer, { recursive: true });
    }
    await expect(script('restore', { ...first, JOB_UID: 'c2d3' })).rejects.toThrow(
      /has \d+ tables: restore into empty/,
    );
    await expect(script('restore')).rejects.toThrow(/has \d+ tables: restore into empty/);
  });

  test('a database without tables is not backed up, and what was begun is removed', async () => {
    const before = await readdir(path.join(folder, 'backups'));
    await dropDatabases([roles.role('tasks')]);
    await roles.prepare();
    try {
      await expect(script('backup')).rejects.toThrow(
        `${roles.role('tasks')} has no tables: there is nothing to back up`,
      );
      expect(await readdir(path.join(folder, 'backups'))).toEqual(before);
    } finally {
      await roles.migrate('tasks');
    }
  });

  test('with Kafka a backup is restored beside other topics only, which are then read from the beginning', async () => {
    await withClient(roles.ownerUrls.finance, (client) =>
      client.query(`insert into bus_offset (consumer, topic, partition, next) values ('data', 'granary.data', 0, 7)`),
    );
    const TOPIC_PREFIX = 'granary';
    await script('backup', { TOPIC_PREFIX, KEEP: '9' });
    await dropDatabases(names);
    await roles.prepare();
    await expect(script('restore', { TOPIC_PREFIX })).rejects.toThrow('set kafka.topicPrefix to another');
    await script('restore', { TOPIC_PREFIX: 'granary-2' });
    const offsets = await withClient(roles.ownerUrls.finance, (client) => client.query('select * from bus_offset'));
    expect(offsets.rows).toEqual([]);
  });

  test('keeps as many backups as it should, and removes what a killed one has left', async () => {
    const backups = path.join(folder, 'backups');
    const running = '.incomplete-backup-2020-01-02T00-00-00Z';
    for (const name of ['.incomplete-backup-2020-01-01T00-00-00Z', running, 'backup-2020-01-01T00-00-00Z'])
      await mkdir(path.join(backups, name));
    const old = new Date(Date.now() - 3 * 3_600_000);
    await utimes(path.join(backups, '.incomplete-backup-2020-01-01T00-00-00Z'), old, old);
    await script('backup', { DEADLINE: '7200' });
    const left = await readdir(backups);
    expect(left.sort()).toEqual([running, expect.stringMatching(/^backup-20(?!20-)/)]);
  });
});
