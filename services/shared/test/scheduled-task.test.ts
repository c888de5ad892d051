import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { busMigrations } from '@granary/shared/bus/migrations';
import { createLogger } from '@granary/shared/logger';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import { applyMigrations } from '@granary/shared/postgres/migrate';
import { createPool, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { forkProgram } from '@granary/testing/programs';
import { limitMs } from '@granary/testing/speed';
import type { TaskProcess } from './support/scheduled-task-process';

const log = createLogger('scheduled-task-test', 'silent');
const stops: Array<() => unknown> = [];
let url: string;
let pool: Pool;

beforeAll(async () => {
  ({ url } = await testDatabase());
  pool = open(url);
  await applyMigrations(pool, 'bus', busMigrations);
});
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});
afterAll(() => pool.end());

const open = (databaseUrl: string): Pool =>
  createPool({ url: databaseUrl, size: 4, applicationName: 'scheduled-task-test', log });

test('one of three processes at a time runs a task, with the pause of a single process between the runs', async () => {
  const everyMs = 200;
  const began: number[] = [];
  const ended: number[] = [];
  let atOnce = 0;
  let mostAtOnce = 0;
  const run = async () => {
    began.push(performance.now());
    mostAtOnce = Math.max(mostAtOnce, ++atOnce);
    await delay(20);
    atOnce--;
    ended.push(performance.now());
  };
  for (let copy = 0; copy < 3; copy++) {
    const task = startScheduledTask({ pool, log, name: 'in turn', everyMs, run });
    stops.push(() => task.stop());
  }
  await eventually(() => ended.length >= 6);
  expect(mostAtOnce).toBe(1);
  // A little less, because the clocks of two processes are involved.
  for (let at = 1; at < 6; at++) expect(began[at]! - ended[at - 1]!).toBeGreaterThan(0.8 * everyMs);
});

test('while a process that runs a task is alive no other one does; after it was killed another one does', async () => {
  // The process renews it four times in this time, unless a busy machine holds it up for so long.
  const settings: TaskProcess = { url, name: 'killed', leaseMs: limitMs(1_000) };
  const child = await forkProgram(join(__dirname, 'support/scheduled-task-process.ts'), [JSON.stringify(settings)]);
  stops.push(() => child.kill('SIGKILL'));
  await once(child, 'message');
  let rounds = 0;
  const run = async () => void rounds++;
  const task = startScheduledTask({ pool, log, name: settings.name, leaseMs: settings.leaseMs, everyMs: 20, run });
  stops.push(() => task.stop());
  await delay(3 * settings.leaseMs);
  expect(rounds).toBe(0);
  child.kill('SIGKILL');
  await eventually(() => rounds > 0);
});

test('a task that was interrupted by a stop is run by another process at once', async () => {
  const options = { pool, log, name: 'stopped', everyMs: 3_600_000, leaseMs: 3_600_000 };
  let begun = false;
  const first = startScheduledTask({
    ...options,
    run: async (stopping) => {
      begun = true;
      await once(stopping, 'abort');
    },
  });
  await eventually(() => begun);
  await first.stop();
  let rounds = 0;
  const second = startScheduledTask({ ...options, run: async () => void rounds++ });
  stops.push(() => second.stop());
  await eventually(() => rounds === 1);
});

test('a task that fails is run again', async () => {
  let rounds = 0;
  const run = () => Promise.reject(new Error(`round ${++rounds}`));
  const task = startScheduledTask({ pool, log, name: 'failing', everyMs: 20, run });
  stops.push(() => task.stop());
  await eventually(() => rounds >= 3);
});

test('processes that start together on an empty database apply each migration once', async () => {
  const empty = (await testDatabase()).url;
  const pools = [open(empty), open(empty), open(empty)];
  stops.push(...pools.map((each) => () => each.end()));
  const migrations = [
    { name: 'table', text: 'create table counted (n int); select pg_sleep(0.2)' },
    { name: 'row', text: 'insert into counted values (1)' },
  ];
  await Promise.all(pools.map((each) => applyMigrations(each, 'test', migrations)));
  expect(await rows(pools[0]!, sql`select n from counted`)).toEqual([{ n: 1 }]);
});
