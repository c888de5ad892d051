import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { routes } from '@granary/gateway/routes/table';
import { startTasks } from '@granary/tasks/service';
import { tasksConfig } from '@granary/tasks/config';
import { readConfig } from '@granary/shared/config';
import { createLogger } from '@granary/shared/logger';
import { eventuallyResolves } from '@granary/testing/eventually';
import { builtProgram } from '@granary/testing/programs';
import { superuserUrl } from '@granary/testing/database';
import { databaseServices } from '@granary/local/start/constellation';
import { asCaller, changingRequests, settleMoney } from '../support/changing-requests';
import { newApp, send } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { describeWithPsql, serviceRoles, withClient } from '../support/service-roles';

const run = promisify(execFile);

/** The SQLSTATE with which a statement is refused; undefined when it is not. Nothing of it stays. */
const refusal = (url: string, statement: string): Promise<string | undefined> =>
  withClient(url, async (client) => {
    await client.query('begin');
    const outcome = await client.query(statement).then(
      () => undefined,
      (error: { code: string }) => error.code,
    );
    await client.query('rollback');
    return outcome;
  });

const denied = '42501';
const settings = { MIGRATIONS: 'wait' };
const ofEach = <T>(value: T) => Object.fromEntries(databaseServices.map((service) => [service, value]));

describeWithPsql(describe)('the databases and roles of deploy/postgres.sql', () => {
  const roles = serviceRoles();
  beforeAll(async () => {
    expect([await roles.prepare(), await roles.prepare()]).toEqual(['', '']);
    for (const service of databaseServices) await roles.migrate(service);
  });

  test('every changing route works while no service may change its schema, and the ledger is consistent', async () => {
    const granary = await startGranary('wire', {
      databaseUrls: roles.urls,
      settings: {
        ...ofEach(settings),
        finance: { ...settings, SIMULATED_BLOCK_MS: '100' },
        payments: { ...settings, ENCRYPTED_INDEX_UTIA: '0' },
      },
    });
    try {
      const app = await newApp(granary);
      await app.store('docs', [{ id: '1', n: 1 }]);
      await app.call('POST', `/api/apps/${app.appId}/views`, {
        name: 'live',
        source_collections: ['docs'],
        query: { group_by: ['n'] },
        refresh_mode: 'live',
      });
      for (const route of routes.filter(({ id }) => id in changingRequests)) {
        const asked = await changingRequests[route.id]!(app);
        const answer = await send(granary.url, route.method, asked.path, asCaller(route, asked, app.key));
        expect([route.id, answer.status < 300, answer.text]).toEqual([route.id, true, answer.text]);
        const ticket = answer.body['ticket_id'];
        if (typeof ticket === 'string') expect((await app.ended(ticket)).status).toBe('Completed');
      }
      await settleMoney(app);
      expect((await app.list('docs')).body.total).toBeGreaterThan(1);
      // A part that answers late on a busy machine is degraded for that moment.
      await eventuallyResolves(async () => {
        const { text } = await send(granary.url, 'GET', '/health');
        if ((JSON.parse(text) as { status: string }).status !== 'healthy') throw new Error(text);
      });
    } finally {
      await granary.stop();
    }
    const [{ sum, transfers }] = await withClient(roles.urls.finance, async (client) => {
      const { rows } = await client.query<{ sum: string; transfers: string }>(
        'select sum(credits_posted - debits_posted) as sum, (select count(*) from transfer) as transfers from account',
      );
      return rows as [{ sum: string; transfers: string }];
    });
    expect([Number(sum), Number(transfers) > 0]).toEqual([0, true]);
  });

  test.each([
    'update transfer set amount = 1',
    'delete from transfer',
    'truncate transfer',
    'delete from account',
    'truncate account cascade',
    'alter table transfer disable trigger all',
    'drop trigger transfer_guard on transfer',
    'create or replace function transfer_guard() returns trigger language plpgsql as $$ begin return null; end $$',
    'drop table transfer',
    'insert into migration (source, number, name, checksum) values (1, 1, 1, 1)',
    'set role postgres',
  ])('the role of finance is refused: %s', async (statement) => {
    expect(await refusal(roles.urls.finance, statement)).toBe(denied);
  });

  test.each(databaseServices)('the role of %s makes no table, and enters no other database', async (service) => {
    const url = roles.urls[service];
    expect(await refusal(url, 'create table made (n int)')).toBe(denied);
    expect(await refusal(url, 'alter table migration add column made int')).toBe(denied);
    // Applications have schemas of their own.
    expect(await refusal(url, 'create schema made')).toBe(service === 'data' ? undefined : denied);
    for (const other of databaseServices.filter((one) => one !== service)) {
      const entered = withClient(url.replace(/\/[^/]*$/, `/${roles.role(other)}`), () => Promise.resolve());
      await expect(entered).rejects.toMatchObject({ code: denied });
    }
  });

  test('the tools of the image work as the role of a service, with its password in a file', async () => {
    const folder = await mkdtemp(path.join(os.tmpdir(), 'granary-roles-'));
    const url = new URL(roles.urls.finance);
    const DATABASE_PASSWORD_FILE = path.join(folder, 'password');
    await writeFile(DATABASE_PASSWORD_FILE, url.password);
    url.password = '';
    const env = { PATH: process.env['PATH'], DATABASE_URL: url.href, DATABASE_PASSWORD_FILE };
    const operator = await builtProgram('operator');
    const tool = async (...args: string[]) => (await run(process.execPath, [operator, ...args], { env })).stdout;
    try {
      expect(await tool('payouts')).toMatch(/^0 transactions are held/m);
      expect(await tool('payouts', '--resume')).toMatch(/^0 senders are resumed/);
      expect(await tool('ledger-verify', '--resume')).toMatch(
        /^\d+ accounts, 0 differences\n0 differences are resolved/m,
      );
      expect(await tool('dead-letters', 'list')).toMatch(/^0 events of 0 keys are dead-lettered/);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  test('a second migrate finds nothing to change', async () => {
    const rights = () =>
      withClient(roles.ownerUrls.finance, async (client) => {
        const { rows } = await client.query(
          `select relname, xmin::text, relacl::text from pg_class where relnamespace = 'public'::regnamespace order by 1`,
        );
        return rows as unknown[];
      });
    const before = await rights();
    await Promise.all([1, 2].map(() => roles.migrate('finance')));
    expect(await rights()).toEqual(before);
  });

  test('without MIGRATIONS=wait a start as the role of a service ends with a sentence', async () => {
    const config = readConfig(tasksConfig, {
      DATABASE_URL: roles.urls.tasks,
      DATA_ADDRESS: '127.0.0.1:1',
      INTERNAL_SECRET: 'internal-secret-of-the-tests-0123456789',
    });
    const started = startTasks(config, { log: createLogger('test', 'silent') });
    await expect(started).rejects.toThrow('may not change the schema: run the command migrate as the owner');
  });

  test('SERVICE_ROLE must be an existing role, and not the one that migrates', async () => {
    const migrated = (SERVICE_ROLE: string) => roles.migrate('tasks', { SERVICE_ROLE });
    await expect(migrated('nobody_has_this')).rejects.toThrow('Postgres has no role nobody_has_this');
    await expect(migrated(`${roles.role('tasks')}_owner`)).rejects.toThrow('must be another one');
    await expect(migrated(roles.role('data'))).rejects.toThrow('as deploy/postgres.sql does');
  });
});

describeWithPsql(describe)('databases that the roles of the services own', () => {
  test('become the owners’ without a moment in which a running service lacks a right', async () => {
    const roles = serviceRoles();
    // As a Granary before these roles made them.
    await withClient(superuserUrl(), async (client) => {
      for (const service of databaseServices) {
        const name = roles.role(service);
        const password = decodeURIComponent(new URL(roles.urls[service]).password);
        await client.query(`create role ${name} login password '${password}'`);
        await client.query(`create database ${name} owner ${name} template template0`);
      }
    });
    const granary = await startGranary('wire', { databaseUrls: roles.urls });
    try {
      const app = await newApp(granary);
      await app.store('docs', [{ n: 1 }]);
      let isDone = false;
      let stored = 0;
      const writer = (async () => {
        for (; !isDone; stored += 1) {
          await app.store('docs', [{ n: 1 }]);
          await app.call('PUT', `/api/apps/${app.appId}/datasets/d`, { values: [stored] });
        }
      })();
      try {
        await roles.prepare();
        for (const service of databaseServices) await roles.migrate(service);
      } finally {
        isDone = true;
        await writer;
      }
      expect(stored).toBeGreaterThan(0);
      await app.store('later', [{ n: 1 }]);
      expect((await app.list('docs')).body.total).toBe(stored + 1);
      for (const service of databaseServices) {
        expect([service, await refusal(roles.urls[service], 'alter table migration add column made int')]).toEqual([
          service,
          denied,
        ]);
      }
      expect(await refusal(roles.urls.finance, 'delete from transfer')).toBe(denied);
      // Migrations of the owner change tables of applications, too.
      const table = await tableOfApp(roles.urls.data);
      expect(await refusal(roles.ownerUrls.data, `alter table ${table} add column made int`)).toBeUndefined();
    } finally {
      await granary.stop();
    }
  });

  test('are prepared by a role that is no superuser, too', async () => {
    const admin = 'roles_admin';
    await withClient(superuserUrl(), (client) =>
      client.query(`create role ${admin} login createdb createrole password 'admin'`),
    );
    const url = Object.assign(new URL(superuserUrl()), { username: admin, password: 'admin' }).href;
    const roles = serviceRoles(url);
    expect([await roles.prepare(), await roles.prepare()]).toEqual(['', '']);
    await roles.migrate('finance');
    expect(await refusal(roles.urls.finance, 'delete from transfer')).toBe(denied);
  });
});

const tableOfApp = (url: string): Promise<string> =>
  withClient(url, async (client) => {
    const { rows } = await client.query<{ name: string }>(
      `select oid::regclass::text as name from pg_class where relname ~ '^c_' and relkind = 'r' limit 1`,
    );
    return rows[0]!.name;
  });
