import { randomUUID } from 'node:crypto';
import { newTicket } from '@granary/shared/ids';
import type { ServiceError } from '@granary/shared/errors';
import { createLogger } from '@granary/shared/logger';
import { createPool, rows } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { JobWorker } from '../src/jobs/worker';
import { enqueueJob, getJob, waitingJobsMax, type JobFunction, type JobHandler, type JobKind } from '../src/jobs/queue';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';

const log = createLogger('test', 'silent');

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());

async function newAppWith(collection: string): Promise<TestApp> {
  const app = await fixture.newApp();
  await app.createCollection(collection);
  await app.store(collection, ['{"id":"1","n":1}', '{"id":"2","n":2}']);
  return app;
}

const createView = (app: TestApp, name: string) =>
  fixture.methods.createView({
    appId: app.appId,
    appNumber: app.number.toString(),
    name,
    queryJson: Buffer.from('{}'),
    sourceCollections: ['docs'],
    refreshMode: 'lazy',
    variablesJson: Buffer.from(''),
    readAccess: '',
    ticketId: newTicket('j', app.number),
  });

const refresh = async (app: TestApp, name: string) =>
  (await fixture.methods.refreshView({ appId: app.appId, name, ticketId: newTicket('j', app.number) })).ticketId;

/** Keeps the workers from taking jobs while `work` runs: they wait for the lock under which they choose. */
async function whileNoneIsTaken<T>(work: () => Promise<T>): Promise<T> {
  const connection = await fixture.pool.connect();
  try {
    await connection.query('select pg_advisory_lock(7265003)');
    return await work();
  } finally {
    await connection.query('select pg_advisory_unlock(7265003)');
    connection.release();
  }
}

/** Tickets of ended jobs, in the order in which they ended. */
const ended = async (apps: readonly TestApp[]) =>
  rows<{ ticket_id: string; app_number: bigint }>(
    fixture.pool,
    sql`select ticket_id, app_number from job where app_number = any(${apps.map(({ number }) => number)})
          and status = 'Completed' order by updated_at`,
  );

test('apps with long queues of jobs delay the job of another by a few of their own, not by their queues', async () => {
  const busy = await Promise.all(Array.from({ length: 4 }, () => newAppWith('docs')));
  const other = await newAppWith('docs');
  const [last, mine] = await whileNoneIsTaken(async () => {
    const tickets: string[] = [];
    for (const app of busy) {
      for (let at = 0; at < 20; at++) tickets.push((await createView(app, `view${at}`)).ticketId);
    }
    return [tickets, (await createView(other, 'mine')).ticketId];
  });
  await other.completed(mine);
  for (const [at, app] of busy.entries()) await app.completed(last[20 * at + 19]!);
  const order = (await ended([...busy, other])).map(({ ticket_id }) => ticket_id);
  expect(order).toHaveLength(81);
  expect(order.indexOf(mine)).toBeLessThan(12);
});

test('two apps with waiting jobs alternate, and neither has two running', async () => {
  const [a, b] = await Promise.all([newAppWith('docs'), newAppWith('docs')]);
  const tickets = await whileNoneIsTaken(async () => {
    const made: string[] = [];
    for (let at = 0; at < 12; at++) made.push((await createView(a, `view${at}`)).ticketId);
    for (let at = 0; at < 12; at++) made.push((await createView(b, `view${at}`)).ticketId);
    return made;
  });
  await Promise.all([a.completed(tickets[11]!), b.completed(tickets[23]!)]);
  const owners = (await ended([a, b])).map(({ app_number }) => app_number);
  const ofA = (upTo: number) => owners.slice(0, upTo).filter((number) => number === a.number).length;
  for (const upTo of [8, 12, 16]) expect(Math.abs(ofA(upTo) - upTo / 2)).toBeLessThanOrEqual(2);
});

test('one refresh of a view waits at a time: a second call gets its ticket, a call after its start another', async () => {
  const app = await newAppWith('docs');
  await app.completed((await createView(app, 'view')).ticketId);
  const [first, second, otherView] = await whileNoneIsTaken(async () => {
    await createView(app, 'other');
    return Promise.all([refresh(app, 'view'), refresh(app, 'view'), refresh(app, 'other')]);
  });
  expect(second).toBe(first);
  expect(otherView).not.toBe(first);
  await app.completed(first);
  expect(await refresh(app, 'view')).not.toBe(first);
});

test('a job that waits is not started before the commit of a second call that relies on it', async () => {
  const app = await newAppWith('docs');
  const log = createLogger('test', 'silent');
  const pool = createPool({ url: fixture.url, size: 2, applicationName: 'test', log });
  const [caller, worker] = await Promise.all([pool.connect(), pool.connect()]);
  const isFree = async (ticketId: string) =>
    (await rows(worker, sql`select from job where ticket_id = ${ticketId} for update skip locked`)).length === 1;
  try {
    await whileNoneIsTaken(async () => {
      const { ticketId } = await createView(app, 'view');
      const [job] = await rows<{ subject: string }>(caller, sql`select subject from job where ticket_id = ${ticketId}`);
      await caller.query('begin');
      expect(await isFree(ticketId)).toBe(true);
      const owner = { number: app.number, appId: app.appId };
      expect(await enqueueJob(caller, owner, 'view.refresh', {}, job)).toBe(ticketId);
      expect(await isFree(ticketId)).toBe(false);
      await caller.query('commit');
      expect(await isFree(ticketId)).toBe(true);
    });
  } finally {
    caller.release();
    worker.release();
    await pool.end();
  }
});

test('one rebuild of an index waits at a time', async () => {
  const app = await newAppWith('docs');
  await app.createIndex('docs', 'n');
  const rebuild = () =>
    fixture.methods.rebuildIndex({
      appId: app.appId,
      collection: 'docs',
      name: 'docs_n',
      ticketId: newTicket('j', app.number),
    });
  const [first, second] = await whileNoneIsTaken(async () => [await rebuild(), await rebuild()]);
  expect(second).toEqual(first);
  await app.completed(first.ticketId);
});

test('beyond the limit of waiting jobs an app is refused and nothing changes, while others are not', async () => {
  const [app, other] = await Promise.all([newAppWith('docs'), newAppWith('docs')]);
  const mine = await whileNoneIsTaken(async () => {
    for (let at = 0; at < waitingJobsMax; at++) await createView(app, `view${at}`);
    const refused = (await createView(app, 'one_more').catch((error: unknown) => error)) as ServiceError;
    expect(refused).toMatchObject({ code: 'RESOURCE_EXHAUSTED', reason: 'TOO_MANY_JOBS' });
    const listed = await fixture.methods.listViews({ appId: app.appId });
    expect(listed.views.some(({ name }) => name === 'one_more')).toBe(false);
    // A collection can be deleted all the same.
    await fixture.methods.deleteCollection({ appId: app.appId, name: 'docs', force: true, cascade: true });
    return createView(other, 'view');
  });
  await other.completed(mine.ticketId);
});

/** A database with an app and no workers. */
async function openQueue() {
  const own = await startFixture();
  const pool = createPool({ url: own.url, size: 4, applicationName: 'test', log });
  const { appId, number } = await own.newApp();
  await own.stop();
  const enqueue = (kind: JobKind) =>
    transaction(pool, (tx) => enqueueJob(tx, { number, appId }, kind, {}, { subject: randomUUID() }));
  return { pool, enqueue };
}

/** Jobs of each kind are done by one handler. */
const everyKind = (handler: JobHandler): Record<JobKind, JobHandler> => ({
  'index.build': handler,
  'view.refresh': handler,
  'view.change': handler,
  'encryption.rotate': handler,
  'instants.renew': handler,
  'collection.drop': handler,
  'app.drop': handler,
});

test('with a full disk a refresh is put back and waits, a drop is run, and the refresh goes on once there is room', async () => {
  const { pool, enqueue } = await openQueue();
  const storage = { isFull: false };
  let starts = 0;
  const refreshView: JobFunction = async (_, __, report) => {
    starts += 1;
    // The disk becomes full under the first run.
    storage.isFull = starts === 1;
    await report(0.5, 'half of it');
    return {};
  };
  const handlers = { ...everyKind({ run: () => Promise.resolve({}) }), 'view.refresh': { run: refreshView } };
  const worker = new JobWorker({ pool, log }, handlers, 3, storage, () => {});
  const statusOf = async (ticketId: string) => (await getJob({ pool }, { ticketId })).status;
  try {
    const refreshed = await enqueue('view.refresh');
    await eventually(() => starts === 1 && storage.isFull);
    const dropped = await enqueue('collection.drop');
    await eventually(async () => (await statusOf(dropped)) === 'Completed');
    expect([await statusOf(refreshed), starts]).toEqual(['StoringData', 1]);
    storage.isFull = false;
    await eventually(async () => (await statusOf(refreshed)) === 'Completed');
    expect(starts).toBe(2);
  } finally {
    await worker.stop();
    await pool.end();
  }
});

test('a job whose runs all ended with their process has failed after 25 of them, and is not run again', async () => {
  const { pool, enqueue } = await openQueue();
  let runs = 0;
  const run: JobFunction = () => Promise.resolve({ runs: ++runs });
  const ticketId = await enqueue('view.refresh');
  // As 25 workers leave it that were killed.
  await pool.query(`update job set status = 'StoringData', attempts = 25, leased_until = now()`);
  const worker = new JobWorker({ pool, log }, everyKind({ run }), 1, { isFull: false }, () => {});
  try {
    await eventually(async () => (await getJob({ pool }, { ticketId })).status === 'Failed');
    expect(await getJob({ pool }, { ticketId })).toMatchObject({
      error: expect.stringContaining('25 times') as string,
    });
    expect(runs).toBe(0);
  } finally {
    await worker.stop();
    await pool.end();
  }
});

test('a drop that fails more often than other jobs may is repeated until it succeeds', async () => {
  const { pool, enqueue } = await openQueue();
  let runs = 0;
  const drop: JobFunction = () => {
    runs += 1;
    return runs > 7 ? Promise.resolve({}) : Promise.reject(new Error('something is in the way'));
  };
  const repeated = { run: drop, neverFails: true as const };
  const handlers = { ...everyKind({ run: drop }), 'collection.drop': repeated, 'app.drop': repeated };
  const worker = new JobWorker({ pool, log }, handlers, 1, { isFull: false }, () => {});
  try {
    const ticketId = await enqueue('collection.drop');
    await eventually(async () => {
      // Without the pauses between its runs.
      await pool.query('update job set not_before = null where not_before is not null');
      return (await getJob({ pool }, { ticketId })).status === 'Completed';
    });
    expect(runs).toBe(8);
  } finally {
    await worker.stop();
    await pool.end();
  }
});

test('a job that reports nothing for longer than its lease is not started by another worker', async () => {
  const { pool, enqueue } = await openQueue();
  const leaseMs = limitMs(1_000);
  let [runs, isDone] = [0, false];
  const run: JobFunction = async () => {
    runs += 1;
    await eventually(() => isDone);
    return {};
  };
  const open = () => new JobWorker({ pool, log }, everyKind({ run }), 1, { isFull: false }, () => {}, leaseMs);
  const workers = [open(), open()];
  try {
    const ticketId = await enqueue('view.refresh');
    await eventually(() => runs === 1);
    const leasedUntil = async () => {
      const [job] = await rows<{ at: Date }>(
        pool,
        sql`select leased_until as at from job where ticket_id = ${ticketId}`,
      );
      return job!.at.getTime();
    };
    const first = await leasedUntil();
    await eventually(async () => (await leasedUntil()) > first + 2 * leaseMs);
    expect(runs).toBe(1);
    isDone = true;
    await eventually(async () => (await getJob({ pool }, { ticketId })).status === 'Completed');
  } finally {
    isDone = true;
    await Promise.all(workers.map((worker) => worker.stop()));
    await pool.end();
  }
});
