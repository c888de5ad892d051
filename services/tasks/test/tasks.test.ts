import { prepareOutbox } from '@granary/shared/bus/epoch';
import { busMigrations } from '@granary/shared/bus/migrations';
import { append, outboxImplementation } from '@granary/shared/bus/outbox';
import { readConfig } from '@granary/shared/config';
import { notFound, notImplemented, unavailable } from '@granary/shared/errors';
import type { Commit } from '@granary/shared/gen/granary/data/v1/Commit';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { Job } from '@granary/shared/gen/granary/data/v1/Job';
import type { HealthDefinition } from '@granary/shared/gen/granary/health/v1/Health';
import type { TasksDefinition } from '@granary/shared/gen/granary/tasks/v1/Tasks';
import { openClient, type Target } from '@granary/shared/grpc/client';
import { loadService } from '@granary/shared/rpc/protos';
import { startServer } from '@granary/shared/grpc/server';
import type { Implementation } from '@granary/shared/rpc/implementation';
import { newCall, type Handlers } from '@granary/shared/rpc/types';
import { healthDefinition } from '@granary/shared/service/health-rpc';
import { newTicket } from '@granary/shared/ids';
import { createLogger } from '@granary/shared/logger';
import { applyMigrations } from '@granary/shared/postgres/migrate';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { transaction } from '@granary/shared/postgres/transaction';
import { testDatabase } from '@granary/testing/database';
import { openTrust } from '@granary/shared/trust/trust';
import { eventuallyHolds } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { tasksConfig } from '../src/config';
import { startTasks, tasksDefinition } from '../src/service';

const log = createLogger('tasks-test', 'silent');
const secret = 'a secret that the services share with each other';
const dataDefinition = loadService<DataDefinition>('data', 'Data');
const stops: Array<() => Promise<void>> = [];

afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

/** What stands in for the data service: its two answers about tickets can be set, and it can be away. */
class DataStandIn {
  readonly jobs = new Map<string, Job>();
  readonly commits = new Map<string, Commit>();
  away = false;

  private find<T>(known: Map<string, T>, ticketId: string): T {
    if (this.away) throw unavailable('away');
    const found = known.get(ticketId);
    if (!found) throw notFound('TASK_NOT_FOUND', 'There is no such task');
    return found;
  }

  implementation(): Implementation<DataDefinition> {
    const names = Object.keys(dataDefinition).map((name) => name[0]!.toLowerCase() + name.slice(1));
    const refuse = () => Promise.reject(notImplemented('This'));
    const handlers = {
      ...Object.fromEntries(names.map((name) => [name, refuse])),
      getJob: async ({ ticketId }: { ticketId: string }) => this.find(this.jobs, ticketId),
      getCommit: async ({ ticketId }: { ticketId: string }) => this.find(this.commits, ticketId),
    };
    return { definition: dataDefinition, handlers: handlers as unknown as Handlers<DataDefinition> };
  }
}

async function publisher(): Promise<Pool> {
  const pool = createPool({ url: (await testDatabase()).url, size: 4, applicationName: 'tasks-test', log });
  stops.push(() => pool.end());
  await applyMigrations(pool, 'bus', busMigrations);
  await prepareOutbox(pool);
  return pool;
}

async function world(transport: 'in one process' | 'over gRPC') {
  const pool = await publisher();
  const standIn = new DataStandIn();
  const data = standIn.implementation();
  const dataOutbox = outboxImplementation({
    pool,
    log,
    signer: openTrust('data', { INTERNAL_SECRET: secret }, log).signer,
  });
  const DATABASE_URL = (await testDatabase()).url;
  let environment: Record<string, string> = { DATABASE_URL, INTERNAL_SECRET: secret };
  if (transport === 'over gRPC') {
    const server = await startServer('127.0.0.1:0', [data, dataOutbox], log);
    stops.push(() => server.stop());
    environment = { ...environment, DATA_ADDRESS: server.address };
  }

  const start = async () => {
    const direct = transport === 'in one process';
    const config = readConfig(tasksConfig, environment);
    const service = await startTasks(config, {
      log,
      ...(direct && { listen: false, data: { implementation: data }, dataOutbox: { implementation: dataOutbox } }),
    });
    const credentials = () => openTrust('gateway', config, log).towards('tasks');
    const target = (at: number): Target<never> =>
      direct ? { implementation: service.implementations[at] as Implementation<never> } : { address: service.address! };
    const tasks = openClient<TasksDefinition>(tasksDefinition, target(0), { log, credentials });
    const health = openClient<HealthDefinition>(healthDefinition, target(1), { log, credentials });
    let stopped = false;
    const stop = async () => {
      if (stopped) return;
      stopped = true;
      tasks.close();
      health.close();
      await service.stop();
    };
    stops.push(stop);
    return {
      stop,
      getTask: (ticketId: string) => tasks.client.getTask({ ticketId }, newCall('test', limitMs(10_000))),
      health: () => health.client.check({}, newCall('test', limitMs(5_000))),
    };
  };

  const sequences = new Map<string, bigint>();
  const publish = async (ticketId: string, type: string, fields: Record<string, unknown>) => {
    const sequence = (sequences.get(ticketId) ?? 0n) + 1n;
    sequences.set(ticketId, sequence);
    const payload = { ticket_id: ticketId, app_id: 'films', operation_type: 'index.build', ...fields };
    await transaction(pool, (tx) =>
      append(tx, [
        { topic: 'tasks', key: ticketId, aggregateId: ticketId, aggregateSequence: sequence, type, payload },
      ]),
    );
  };
  return { standIn, start, publish };
}

const at = (second: number) => `2026-01-02T03:04:${String(second).padStart(2, '0')}.000Z`;

describe.each(['in one process', 'over gRPC'] as const)('tasks, %s', (transport) => {
  test('a job goes through its states by its events and is still known after a restart, with data away', async () => {
    const { standIn, start, publish } = await world(transport);
    const [done, failed] = [newTicket('j', 7n), newTicket('j', 7n)];
    const tasks = await start();
    await publish(done, 'job.created', { status: 'Pending', progress: 0, at: at(1) });
    expect(
      await eventuallyHolds(
        () => tasks.getTask(done),
        (task) => task.status === 'Pending',
      ),
    ).toMatchObject({
      ticketId: done,
      appId: 'films',
      operationType: 'index.build',
      createdAt: at(1),
      progress: 0,
      progressLog: [],
    });
    await publish(done, 'job.progressed', { status: 'StoringData', progress: 0.5, message: 'half', at: at(2) });
    await publish(failed, 'job.created', { status: 'Pending', at: at(2) });
    await publish(done, 'job.completed', { status: 'Completed', result: { rows: 3 }, message: 'done', at: at(3) });
    await publish(failed, 'job.failed', { status: 'Failed', error: 'no such field', at: at(4) });
    await eventuallyHolds(
      () => tasks.getTask(done),
      (task) => task.status === 'Completed',
    );
    await eventuallyHolds(
      () => tasks.getTask(failed),
      (task) => task.status === 'Failed',
    );
    await tasks.stop();

    standIn.away = true;
    const again = await start();
    expect(await again.getTask(done)).toEqual({
      ticketId: done,
      status: 'Completed',
      error: '',
      operationType: 'index.build',
      appId: 'films',
      createdAt: at(1),
      updatedAt: at(3),
      userAddress: '',
      transactionHash: '',
      blockHeight: '0',
      resultJson: '{"rows":3}',
      progressLog: [`${at(2)} half`, `${at(3)} done`],
      progress: 1,
    });
    expect(await again.getTask(failed)).toMatchObject({ status: 'Failed', error: 'no such field', resultJson: '' });
  });

  test('a job whose events are on their way is answered from data, never from what is further behind', async () => {
    const { standIn, start, publish } = await world(transport);
    const ticketId = newTicket('j', 7n);
    const tasks = await start();
    const job: Job = {
      ticketId,
      appId: 'films',
      operationType: 'index.build',
      status: 'Pending',
      error: '',
      progress: 0,
      createdAt: at(1),
      updatedAt: at(1),
      progressLog: [],
      resultJson: '',
    };
    standIn.jobs.set(ticketId, job);
    expect(await tasks.getTask(ticketId)).toMatchObject({ status: 'Pending', createdAt: at(1) });
    await publish(ticketId, 'job.created', { status: 'Pending', at: at(1) });
    await publish(ticketId, 'job.progressed', { status: 'StoringData', progress: 0.25, at: at(2) });
    // What data says is now behind what the events said.
    await eventuallyHolds(
      () => tasks.getTask(ticketId),
      (task) => task.status === 'StoringData' && task.progress === 0.25,
    );
    standIn.jobs.set(ticketId, { ...job, status: 'StoringData', progress: 0.75, updatedAt: at(4) });
    expect(await tasks.getTask(ticketId)).toMatchObject({ status: 'StoringData', progress: 0.75 });
    standIn.jobs.set(ticketId, {
      ...job,
      status: 'Completed',
      progress: 1,
      updatedAt: at(3),
      resultJson: '{"rows":3}',
    });
    expect(await tasks.getTask(ticketId)).toMatchObject({ status: 'Completed', resultJson: '{"rows":3}' });
    standIn.jobs.clear();
    expect(await tasks.getTask(ticketId)).toMatchObject({ status: 'StoringData', progress: 0.25 });
    standIn.away = true;
    expect(await tasks.getTask(ticketId)).toMatchObject({ status: 'StoringData', progress: 0.25 });
  });

  test('the ticket of a commit is a completed task; unknown and malformed tickets are not found', async () => {
    const { standIn, start } = await world(transport);
    const ticketId = newTicket('c', 7n);
    standIn.commits.set(ticketId, {
      ticketId,
      appId: 'films',
      operationType: 'store',
      collection: 'films',
      transactionHash: 'ab'.repeat(32),
      height: '9007199254740993',
      committedAt: at(1),
      userAddress: '',
      resultJson: Buffer.from('{"results":[]}'),
      collectionNumber: '1',
    });
    const tasks = await start();
    expect(await tasks.getTask(ticketId)).toMatchObject({
      status: 'Completed',
      operationType: 'store',
      transactionHash: 'ab'.repeat(32),
      blockHeight: '9007199254740993',
      resultJson: '{"results":[]}',
      createdAt: at(1),
      progress: 1,
    });
    for (const unknown of [newTicket('c', 7n), newTicket('j', 7n), '', 'nonsense', `${ticketId}x`, "j1-' or true --"]) {
      await expect(tasks.getTask(unknown)).rejects.toMatchObject({ code: 'NOT_FOUND', reason: 'TASK_NOT_FOUND' });
    }
    standIn.away = true;
    await expect(tasks.getTask(newTicket('j', 7n))).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  });

  test('a task never goes back, and an event that cannot be read is put aside and shows in health', async () => {
    const { start, publish } = await world(transport);
    const [steady, broken] = [newTicket('j', 7n), newTicket('j', 7n)];
    const tasks = await start();
    // Other suites on the same Postgres may hold back events for a while, which degrades health too.
    await eventuallyHolds(tasks.health, ({ status }) => status === 'HEALTHY');
    await publish(steady, 'job.completed', { status: 'Completed', result: [1], at: at(1) });
    await publish(steady, 'job.progressed', { status: 'StoringData', progress: 0.1, result: [2], at: at(2) });
    await publish(steady, 'job.failed', { status: 'Failed', error: 'too late', at: at(3) });
    await publish(steady, 'job.renamed', { status: 'of a later release' });
    await publish(broken, 'job.created', { status: 'Vanished', at: at(1) });
    const parked = /^1 events of tasks-data failed or wait behind one that did, /;
    const health = await eventuallyHolds(tasks.health, ({ parts }) =>
      parts.some(({ name, message }) => name === 'events of data' && parked.test(message)),
    );
    expect(health.status).toBe('DEGRADED');
    expect(await tasks.getTask(steady)).toMatchObject({
      status: 'Completed',
      error: '',
      resultJson: '[1]',
      updatedAt: at(1),
    });
    await expect(tasks.getTask(broken)).rejects.toMatchObject({ reason: 'TASK_NOT_FOUND' });
  });
});

test('without the address of data the service says what is missing and does not start', async () => {
  const config = readConfig(tasksConfig, { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' });
  await expect(startTasks(config, { log })).rejects.toThrow('DATA_ADDRESS: is missing');
});
