import { append, outboxDefinition, outboxImplementation, type OutgoingEvent } from '@granary/shared/bus/outbox';
import { startConsumer, type Consumer, type ConsumerOptions } from '@granary/shared/bus/consumer';
import { replayDeadLetters } from '@granary/shared/bus/dead-letters';
import { prepareOutbox } from '@granary/shared/bus/epoch';
import { PoisonEvent, type BusEvent, type Handle } from '@granary/shared/bus/inbox';
import { busMigrations } from '@granary/shared/bus/migrations';
import { createSignal, type Signal } from '@granary/shared/bus/signal';
import { openClient } from '@granary/shared/grpc/client';
import { newCall } from '@granary/shared/grpc/types';
import { createLogger } from '@granary/shared/logger';
import { applyMigrations } from '@granary/shared/postgres/migrate';
import {
  createPool,
  execute,
  row,
  rows,
  type Connection,
  type Pool,
  type Queryable,
} from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { testDatabase } from '@granary/shared/testing/database';

const log = createLogger('bus-test', 'silent');
const pools: Pool[] = [];
const consumers = new Set<Consumer>();

afterEach(async () => {
  await Promise.all([...consumers].map((consumer) => consumer.stop()));
  consumers.clear();
  await Promise.all(pools.splice(0).map((pool) => pool.end()));
});

async function database(size: number, tables: string): Promise<Pool> {
  const pool = createPool({ url: (await testDatabase()).url, size, applicationName: 'bus-test', log });
  pools.push(pool);
  await applyMigrations(pool, 'bus', busMigrations);
  await prepareOutbox(pool);
  await pool.query(tables);
  return pool;
}

/** A service that publishes, and one that consumes, each with a database of its own. */
async function world(size = 4) {
  const publisher = await database(
    size,
    `create table counter (name text primary key, seq bigint not null);
     create table noise (number bigint generated always as identity)`,
  );
  const subscriber = await database(
    6,
    'create table applied (number bigint generated always as identity, key text, seq bigint, value bigint)',
  );
  const appended = createSignal();
  const source = openClient(
    outboxDefinition,
    { implementation: outboxImplementation({ pool: publisher, log, appended }) },
    { log },
  ).client;
  const consume = (options: Partial<ConsumerOptions> = {}) => {
    const consumer = startConsumer({
      pool: subscriber,
      log,
      name: 'subscriber',
      source,
      topics: ['things'],
      handle: record,
      pollMs: { min: 5, max: 20 },
      attempts: 2,
      ...options,
    });
    consumers.add(consumer);
    return consumer;
  };
  return { publisher, subscriber, appended, source, consume };
}

const record: Handle = async (tx, event) => {
  await execute(
    tx,
    sql`insert into applied (key, seq, value)
      values (${event.key}, ${event.aggregateSequence}, ${String(event.payload['value'])}::bigint)`,
  );
};

function thing(key: string, sequence: bigint, value: unknown = sequence.toString()): OutgoingEvent {
  return {
    topic: 'things',
    key,
    aggregateId: key,
    aggregateSequence: sequence,
    type: 'thing.changed',
    payload: { value },
  };
}

/** Publishes the next events of a key, in a transaction that takes their numbers under the lock of the key. */
async function publish(tx: Connection, key: string, count: number): Promise<void> {
  const counter = await row<{ seq: bigint }>(
    tx,
    sql`insert into counter (name, seq) values (${key}, ${count})
      on conflict (name) do update set seq = counter.seq + ${count} returning seq`,
  );
  const first = counter!.seq - BigInt(count) + 1n;
  await append(
    tx,
    Array.from({ length: count }, (_, at) => thing(key, first + BigInt(at))),
  );
}

async function until(condition: () => Promise<boolean>, timeoutMs = 20_000): Promise<void> {
  const deadlineMs = Date.now() + timeoutMs;
  while (!(await condition())) {
    if (Date.now() > deadlineMs) throw new Error('it did not come to pass in time');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function count(pool: Pool, table: 'applied' | 'dead_letter'): Promise<number> {
  const statement =
    table === 'applied' ? sql`select count(*) as count from applied` : sql`select count(*) as count from dead_letter`;
  return Number((await row<{ count: bigint }>(pool, statement))!.count);
}

/** What was applied, by key, in the order in which it happened. */
async function appliedSequences(pool: Pool): Promise<Record<string, string>> {
  const found = await rows<{ key: string; seqs: string }>(
    pool,
    sql`select key, string_agg(seq::text, ',' order by number) as seqs from applied group by key`,
  );
  return Object.fromEntries(found.map((each) => [each.key, each.seqs]));
}

const upTo = (last: number) => Array.from({ length: last }, (_, at) => at + 1).join(',');

describe('events', () => {
  test('of 24 writers with rollbacks reach a consumer once and in order of their key, though two copies of it race and are restarted', async () => {
    const { publisher, subscriber, appended, consume } = await world(24);
    const keys = Array.from({ length: 60 }, (_, at) => `key-${at}`);
    let writing = true;
    const copies = [consume(), consume()];
    const restarts = (async () => {
      while (writing) {
        await new Promise((resolve) => setTimeout(resolve, 100 + Math.random() * 300));
        const at = Math.random() < 0.5 ? 0 : 1;
        await copies[at]!.stop();
        consumers.delete(copies[at]!);
        copies[at] = consume();
      }
    })();

    const write = async () => {
      for (let round = 0; round < 120; round++) {
        await transaction(publisher, async (tx) => {
          // Half of them have an id before they wait for the key, and so commit out of the order of ids.
          if (Math.random() < 0.5) await tx.query('insert into noise default values');
          await publish(tx, keys[Math.floor(Math.random() * keys.length)]!, 1 + Math.floor(Math.random() * 14));
          if (Math.random() < 0.1) throw new Error('changed my mind');
        }).catch((error: Error) => {
          if (error.message !== 'changed my mind') throw error;
        });
        appended.notify();
      }
    };
    await Promise.all(Array.from({ length: 24 }, write));
    writing = false;
    await restarts;

    const written = await rows<{ name: string; seq: bigint }>(publisher, sql`select name, seq from counter`);
    const total = written.reduce((sum, each) => sum + Number(each.seq), 0);
    await until(async () => (await count(subscriber, 'applied')) >= total);
    expect(total).toBeGreaterThan(15_000);
    expect(await appliedSequences(subscriber)).toEqual(
      Object.fromEntries(written.map((each) => [each.name, upTo(Number(each.seq))])),
    );
    expect(await count(subscriber, 'dead_letter')).toBe(0);
    expect((await copies[0]!.lag()).status).toBe('HEALTHY');
  }, 40_000);

  test('are applied once although connections to both databases are cut, also while they commit', async () => {
    const { publisher, subscriber, source, consume } = await world();
    await transaction(publisher, async (tx) => {
      for (let key = 0; key < 30; key++) await publish(tx, `key-${key}`, 100);
    });
    const knife = createPool({ url: (await testDatabase()).url, size: 2, applicationName: 'knife', log });
    pools.push(knife);
    const pidOf = async (db: Queryable) => (await row<{ pid: number }>(db, sql`select pg_backend_pid() as pid`))!.pid;
    const cut = (pid: number) => execute(knife, sql`select pg_terminate_backend(${pid})`);
    const cutting: Array<Promise<unknown>> = [];
    let calls = 0;
    let reads = 0;
    consume({
      handle: async (tx, event) => {
        await record(tx, event);
        if (++calls % 331 !== 0) return;
        // Every other time in the middle of the events, else whenever it gets there.
        const cutNow = cut(await pidOf(tx));
        cutting.push(cutNow);
        if (cutting.length % 2 === 0) await cutNow;
      },
      source: {
        ...source,
        read: async (request, call) => {
          if (++reads % 5 !== 0 || reads > 50) return source.read(request, call);
          const pid = await pidOf(publisher);
          const response = source.read(request, call);
          cutting.push(cut(pid));
          return response;
        },
      },
    });
    await until(async () => (await count(subscriber, 'applied').catch(() => 0)) >= 3_000);
    await Promise.all(cutting);
    expect(cutting.length).toBeGreaterThan(10);
    expect(await appliedSequences(subscriber)).toEqual(
      Object.fromEntries(Array.from({ length: 30 }, (_, key) => [`key-${key}`, upTo(100)])),
    );
    expect(await count(subscriber, 'dead_letter')).toBe(0);
  });

  test('are held back while a transaction that began earlier may still publish, and wait for it to end', async () => {
    const { publisher, subscriber, source, consume } = await world();
    const open = createSignal();
    const began = createSignal();
    const beganOnce = began.wait(5_000);
    const early = transaction(publisher, async (tx) => {
      await publish(tx, 'early', 1);
      began.notify();
      await open.wait(10_000);
    });
    await beganOnce;
    await transaction(publisher, (tx) => publish(tx, 'late', 1));
    consume();
    const read = () =>
      source.read({ consumer: 'reader', after: null, limit: 10, topics: [], waitMs: 0 }, newCall('test', 5_000));
    await until(async () => Number((await read()).stalledMs) > 0);
    expect((await read()).events).toEqual([]);
    expect(await count(subscriber, 'applied')).toBe(0);
    open.notify();
    await early;
    await until(async () => (await count(subscriber, 'applied')) === 2);
    expect((await read()).events.map((event) => event.key)).toEqual(['early', 'late']);
  });

  test('leave nothing behind when their handler throws in the middle, and are applied once when it recovers', async () => {
    const { publisher, subscriber, consume } = await world();
    await transaction(publisher, (tx) => publish(tx, 'a', 5));
    let broken = true;
    let seenWhileBroken = 0;
    consume({
      handle: async (tx, event) => {
        await record(tx, event);
        if (broken && event.aggregateSequence === 3n) {
          seenWhileBroken++;
          // What a database that goes away looks like: it says nothing about the event.
          throw Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
        }
      },
    });
    await until(async () => seenWhileBroken >= 3);
    expect(await appliedSequences(subscriber)).toEqual({});
    broken = false;
    await until(async () => (await count(subscriber, 'applied')) === 5);
    expect(await appliedSequences(subscriber)).toEqual({ a: upTo(5) });
    expect(await count(subscriber, 'dead_letter')).toBe(0);
  });

  test('that are poison park their own key only, and a replay applies them in order', async () => {
    const { publisher, subscriber, consume } = await world();
    let repaired = false;
    const handle: Handle = async (tx, event: BusEvent) => {
      await record(tx, event);
      if (!repaired && event.key === 'bad' && event.aggregateSequence === 2n) throw new PoisonEvent('no such thing');
      if (!repaired && event.key === 'odd' && event.aggregateSequence === 1n) throw new TypeError('a bug');
    };
    await transaction(publisher, async (tx) => {
      for (const key of ['bad', 'good', 'odd']) await publish(tx, key, 4);
    });
    const consumer = consume({ handle });
    await until(async () => (await count(subscriber, 'dead_letter')) === 3 + 4);
    await transaction(publisher, async (tx) => {
      for (const key of ['bad', 'good', 'odd']) await publish(tx, key, 2);
    });
    await until(async () => (await count(subscriber, 'dead_letter')) === 5 + 6);
    await until(async () => (await count(subscriber, 'applied')) === 1 + 6);
    expect(await appliedSequences(subscriber)).toEqual({ bad: '1', good: upTo(6) });
    expect(await consumer.lag()).toEqual({ status: 'DEGRADED', message: '11 events of subscriber were put aside' });

    expect(await replayDeadLetters(subscriber, 'subscriber', handle)).toEqual({
      applied: 0,
      failedKeys: ['bad', 'odd'],
    });
    repaired = true;
    expect(await replayDeadLetters(subscriber, 'subscriber', handle)).toEqual({ applied: 11, failedKeys: [] });
    await transaction(publisher, (tx) => publish(tx, 'bad', 1));
    await until(async () => (await count(subscriber, 'applied')) === 7 + 11 + 1);
    expect(await appliedSequences(subscriber)).toEqual({ bad: upTo(7), good: upTo(6), odd: upTo(6) });
    expect((await consumer.lag()).status).toBe('HEALTHY');
  });

  test('that a transport left out are fetched from the outbox; a number that nobody published stops its key loudly', async () => {
    const { publisher, subscriber, source, consume } = await world();
    await transaction(publisher, (tx) => publish(tx, 'a', 6));
    await transaction(publisher, (tx) => append(tx, [thing('holey', 1n), thing('holey', 3n)]));
    consume({
      source: {
        ...source,
        // Drops what a bad transport could drop; the cursor moves past it all the same.
        read: async (request, call) => {
          const response = await source.read(request, call);
          return {
            ...response,
            events: response.events.filter((event) => Number(event.aggregateSequence) % 3 === 0 || event.key !== 'a'),
          };
        },
      },
    });
    await until(async () => (await count(subscriber, 'dead_letter')) === 1);
    expect(await appliedSequences(subscriber)).toEqual({ a: upTo(6), holey: '1' });
    const letter = await row<{ error: string }>(subscriber, sql`select error from dead_letter`);
    expect(letter!.error).toBe('GapError: the events 2 to 2 of holey are missing');
  });

  test('are read again from the start in another cluster, and applied only if they had not been', async () => {
    const { publisher, subscriber, consume } = await world();
    await transaction(publisher, (tx) => publish(tx, 'a', 3));
    const consumer = consume();
    await until(async () => (await count(subscriber, 'applied')) === 3);
    await consumer.stop();
    // As after a restore: ids of transactions from another cluster, far ahead of the ones that are given out here.
    await transaction(publisher, (tx) => publish(tx, 'a', 2));
    await publisher.query(`update outbox set xid = '9000000000000000000'`);
    await publisher.query(`update outbox_epoch set cluster = 'another'`);
    await subscriber.query(`update bus_cursor set xid = '9000000000000000000', pos = 3`);
    consume();
    await until(async () => (await count(subscriber, 'applied')) === 5);
    await transaction(publisher, (tx) => publish(tx, 'a', 2));
    await until(async () => (await count(subscriber, 'applied')) === 7);
    expect(await appliedSequences(subscriber)).toEqual({ a: upTo(7) });
    const cursor = await row<{ epoch: bigint }>(subscriber, sql`select epoch from bus_cursor`);
    expect(cursor!.epoch).toBe(2n);
  });

  test('that everybody has read are removed after the retention, others never', async () => {
    const { publisher } = await world();
    const appended: Signal = createSignal();
    const handlers = outboxImplementation({ pool: publisher, log, appended, retentionMs: 0, trimEveryMs: 0 }).handlers;
    await transaction(publisher, (tx) => publish(tx, 'a', 4));
    const read = (consumer: string, after: Parameters<typeof handlers.read>[0]['after'], limit: number) =>
      handlers.read({ consumer, after, limit, topics: [], waitMs: 0 }, newCall('test', 5_000));
    const left = async () =>
      (await row<{ seqs: string | null }>(
        publisher,
        sql`select string_agg(agg_seq::text, ',' order by pos) as seqs from outbox`,
      ))!.seqs;

    // Transactions of others in the same cluster may hold the events back for a while.
    await until(async () => (await read('fast', null, 4)).events.length === 4);
    const slow = await read('slow', null, 1);
    const fast = await read('fast', null, 3);
    await read('fast', fast.next, 3);
    expect(await left()).toBe('1,2,3,4');
    // Another copy of the service: it has no memory of when the readers' places were saved last.
    const copy = outboxImplementation({ pool: publisher, log, retentionMs: 0, trimEveryMs: 0 }).handlers;
    await copy.read({ consumer: 'fast', after: fast.next, limit: 3, topics: [], waitMs: 0 }, newCall('test', 5_000));
    await copy.read({ consumer: 'slow', after: slow.next, limit: 1, topics: [], waitMs: 0 }, newCall('test', 5_000));
    expect(await left()).toBe('2,3,4');
  });
});
