import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { busMigrations } from '@granary/shared/bus/migrations';
import { createLogger } from '@granary/shared/logger';
import { startChore } from '@granary/shared/postgres/scheduled-task';
import { applyMigrations } from '@granary/shared/postgres/migrate';
import { createPool, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { testDatabase } from '@granary/shared/testing/database';
import { eventually } from '@granary/shared/testing/eventually';
import type { ChoreProcess } from './support/scheduled-task-process';

const log = createLogger('chores-test', 'silent');
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
  createPool({ url: databaseUrl, size: 4, applicationName: 'chores-test', log });

test('of three copies one at a time does a chore, with the pause of one alone between the rounds', async () => {
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
    const chore = startChore({ pool, log, name: 'in turn', everyMs, run });
    stops.push(() => chore.stop());
  }
  await eventually(() => ended.length >= 6);
  expect(mostAtOnce).toBe(1);
  // A little less, for the clocks of two processes tell the time.
  for (let at = 1; at < 6; at++) expect(began[at]! - ended[at - 1]!).toBeGreaterThan(0.8 * everyMs);
});

test('a chore is left to the copy that is at it for as long as that lives, and then done by another', async () => {
  const settings: ChoreProcess = { url, name: 'killed', leaseMs: 400 };
  const fromSource = join(__dirname, '..', '..', 'local', 'test', 'from-source.js');
  const child = fork(join(__dirname, 'support/scheduled-task-process.ts'), [JSON.stringify(settings)], {
    execArgv: ['--conditions', 'source', '--require', fromSource],
  });
  stops.push(() => child.kill('SIGKILL'));
  await once(child, 'message');
  let rounds = 0;
  const run = async () => void rounds++;
  const chore = startChore({ pool, log, name: settings.name, leaseMs: settings.leaseMs, everyMs: 20, run });
  stops.push(() => chore.stop());
  await delay(3 * settings.leaseMs);
  expect(rounds).toBe(0);
  child.kill('SIGKILL');
  await eventually(() => rounds > 0);
});

test('a chore that a stop has cut short is done by another copy without a wait', async () => {
  const options = { pool, log, name: 'stopped', everyMs: 3_600_000, leaseMs: 3_600_000 };
  let begun = false;
  const first = startChore({
    ...options,
    run: async (stopping) => {
      begun = true;
      await once(stopping, 'abort');
    },
  });
  await eventually(() => begun);
  await first.stop();
  let rounds = 0;
  const second = startChore({ ...options, run: async () => void rounds++ });
  stops.push(() => second.stop());
  await eventually(() => rounds === 1);
});

test('a chore that fails is done again', async () => {
  let rounds = 0;
  const run = () => Promise.reject(new Error(`round ${++rounds}`));
  const chore = startChore({ pool, log, name: 'failing', everyMs: 20, run });
  stops.push(() => chore.stop());
  await eventually(() => rounds >= 3);
});

test('copies that start at once on an empty database apply each migration once', async () => {
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
