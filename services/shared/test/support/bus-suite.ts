import type { KafkaBus } from '@granary/shared/bus/bus';
import { skipFirst } from '../../src/bus/dead-letter-requests';
import { replayDeadLetters } from '@granary/shared/bus/dead-letters';
import { PoisonEvent, type BusEvent, type Handle } from '@granary/shared/bus/inbox';
import { append } from '@granary/shared/bus/outbox';
import { createSignal } from '@granary/shared/concurrency/signal';
import { newCall } from '@granary/shared/rpc/types';
import { execute, row, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { testDatabase } from '@granary/testing/database';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import {
  appliedSequences,
  count,
  openPool,
  publish,
  publishedSequences,
  record,
  stopConsumer,
  thing,
  until,
  untilApplied,
  upTo,
  world,
} from './bus-world';

/** Transactions of each writer. */
const rounds = size({ run: 40, long: 120 });

/**
 * The guarantees of every transport. `bus` creates a deployment for a test; without it the outbox is read.
 * `restarts`: of copies of a consumer under load, at least so many.
 */
export function sharedBusTests(bus: () => Promise<KafkaBus | undefined>, restarts: number): void {
  const seed = seedOf('shared/bus-suite');
  test(
    `events of 24 writers with rollbacks, by the seed ${seed}, reach a consumer once and in order of their key, though two copies of it race and are restarted`,
    async () => {
      const { publisher, subscriber, appended, consume } = await world({ size: 24, bus: await bus() });
      const keys = Array.from({ length: 60 }, (_, at) => `key-${at}`);
      let writing = true;
      const random = seededRandom(seed);
      const copies = [consume(), consume()];
      const restarting = (async () => {
        for (let done = 0; writing || done < restarts; done++) {
          await new Promise((resolve) => setTimeout(resolve, 100 + random() * 300));
          const at = random() < 0.5 ? 0 : 1;
          await stopConsumer(copies[at]!);
          copies[at] = consume();
        }
      })();

      const write = async () => {
        for (let round = 0; round < rounds; round++) {
          await transaction(publisher, async (tx) => {
            // Half of them have an id before they wait for the key, and so commit out of the order of ids.
            if (random() < 0.5) await tx.query('insert into noise default values');
            await publish(tx, keys[Math.floor(random() * keys.length)]!, 1 + Math.floor(random() * 14));
            if (random() < 0.1) throw new Error('changed my mind');
          }).catch((error: Error) => {
            if (error.message !== 'changed my mind') throw error;
          });
          appended.notify();
        }
      };
      await Promise.all(Array.from({ length: 24 }, write));
      writing = false;
      await restarting;

      const { total, sequences } = await publishedSequences(publisher);
      await untilApplied(subscriber, total);
      expect(total).toBeGreaterThan(24 * rounds * 5);
      expect(await appliedSequences(subscriber)).toEqual(sequences);
      expect(await count(subscriber, 'dead_letter')).toBe(0);
      await until(async () => (await copies[0]!.lag()).status === 'HEALTHY');
    },
    limitMs(180_000),
  );

  test('events are applied once although connections to both databases are cut, also during COMMIT', async () => {
    const { publisher, subscriber, consume } = await world({ bus: await bus() });
    await transaction(publisher, async (tx) => {
      for (let key = 0; key < 30; key++) await publish(tx, `key-${key}`, 100);
    });
    const knife = openPool((await testDatabase()).url, 2);
    const pidOf = async (db: Queryable) => (await row<{ pid: number }>(db, sql`select pg_backend_pid() as pid`))!.pid;
    const cut = (pid: number) => execute(knife, sql`select pg_terminate_backend(${pid})`);
    const cutting: Array<Promise<unknown>> = [];
    let calls = 0;
    consume({
      handle: async (tx, event) => {
        await record(tx, event);
        calls++;
        // The next read of the outbox uses this connection, or one is using it now.
        if (calls % 397 === 0) cutting.push(pidOf(publisher).then(cut, () => undefined));
        if (calls % 331 !== 0) return;
        // Every other time in the middle of the events, otherwise at any time.
        const cutNow = cut(await pidOf(tx));
        cutting.push(cutNow);
        if (calls % 662 === 0) await cutNow;
      },
    });
    await untilApplied(subscriber, 3_000);
    await Promise.all(cutting);
    expect(cutting.length).toBeGreaterThan(10);
    expect(await appliedSequences(subscriber)).toEqual(
      Object.fromEntries(Array.from({ length: 30 }, (_, key) => [`key-${key}`, upTo(100)])),
    );
    expect(await count(subscriber, 'dead_letter')).toBe(0);
  });

  test('events are delayed until every transaction that began earlier has ended', async () => {
    const { publisher, subscriber, source, consume } = await world({ bus: await bus() });
    const open = createSignal();
    const began = createSignal();
    const beganOnce = began.wait(limitMs(60_000));
    const early = transaction(publisher, async (tx) => {
      await publish(tx, 'early', 1);
      began.notify();
      await open.wait(limitMs(120_000));
    });
    await beganOnce;
    await transaction(publisher, (tx) => publish(tx, 'late', 1));
    consume();
    const read = () =>
      source.read(
        { consumer: 'reader', after: null, limit: 10, topics: [], waitMs: 0 },
        newCall('test', limitMs(5_000)),
      );
    await until(async () => Number((await read()).stalledMs) > 0);
    expect((await read()).events).toEqual([]);
    expect(await count(subscriber, 'applied')).toBe(0);
    open.notify();
    await early;
    await until(async () => (await count(subscriber, 'applied')) === 2);
    expect((await read()).events.map((event) => event.key)).toEqual(['early', 'late']);
  });

  test('events have no effect when their handler throws, and are applied once when it recovers', async () => {
    const { publisher, subscriber, consume } = await world({ bus: await bus() });
    await transaction(publisher, (tx) => publish(tx, 'a', 5));
    let broken = true;
    let seenWhileBroken = 0;
    consume({
      handle: async (tx, event) => {
        await record(tx, event);
        if (broken && event.aggregateSequence === 3n) {
          seenWhileBroken++;
          // Like a database that becomes unavailable: a temporary error.
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

  test('an event that always fails parks only its own key, and a replay applies the parked events in order', async () => {
    const { publisher, subscriber, consume } = await world({ bus: await bus() });
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
    expect(await consumer.lag()).toEqual({
      status: 'DEGRADED',
      message: expect.stringMatching(
        /^11 events of subscriber failed or wait behind one that did, the oldest for \d+ s$/,
      ) as string,
    });
    const { rows: letters } = await subscriber.query<{ agg_seq: bigint; error: string }>(
      `select agg_seq, error from dead_letter where key = 'bad' order by number`,
    );
    expect(letters.map(({ agg_seq }) => agg_seq)).toEqual([2n, 3n, 4n, 5n, 6n]);
    expect(letters[0]!.error).toBe('PoisonEvent: no such thing');
    for (const { error } of letters.slice(1))
      expect(error).toMatch(/^waits behind thing.changed [0-9a-f-]{36}, which failed: PoisonEvent: no such thing$/);

    const first = await replayDeadLetters(subscriber, 'subscriber', handle);
    expect({ ...first, failedKeys: first.failedKeys.sort() }).toEqual({ applied: 0, failedKeys: ['bad', 'odd'] });
    repaired = true;
    expect(await replayDeadLetters(subscriber, 'subscriber', handle)).toEqual({ applied: 11, failedKeys: [] });
    await transaction(publisher, (tx) => publish(tx, 'bad', 1));
    await until(async () => (await count(subscriber, 'applied')) === 7 + 11 + 1);
    expect(await appliedSequences(subscriber)).toEqual({ bad: upTo(7), good: upTo(6), odd: upTo(6) });
    // Transactions of others in the same cluster may hold events back for a while.
    await until(async () => (await consumer.lag()).status === 'HEALTHY');
  });

  test('dead letters are replayed by the running consumer on request, key by key', async () => {
    const { publisher, subscriber, consume } = await world({ bus: await bus() });
    let repaired = false;
    await transaction(publisher, async (tx) => {
      for (const key of ['a', 'b']) await publish(tx, key, 3);
    });
    consume({
      handle: async (tx, event) => {
        if (!repaired) throw new PoisonEvent('no such thing');
        await record(tx, event);
      },
    });
    await until(async () => (await count(subscriber, 'dead_letter')) === 6);
    const ask = (key: string) =>
      execute(subscriber, sql`update dead_letter set replay_asked = true where key = ${key}`);
    const attempts = async () =>
      (await row<{ attempts: number }>(
        subscriber,
        sql`select sum(attempts)::int as attempts from dead_letter where key = 'a' and not replay_asked`,
      ))!.attempts;
    const before = await attempts();
    await ask('a');
    await until(async () => (await attempts()) === before + 1);
    expect(await appliedSequences(subscriber)).toEqual({});
    repaired = true;
    await ask('a');
    await until(async () => (await count(subscriber, 'dead_letter')) === 3);
    expect(await appliedSequences(subscriber)).toEqual({ a: upTo(3) });
  });

  test('events behind one that always fails are applied once it is skipped, and so are later ones', async () => {
    const { publisher, subscriber, consume } = await world({ bus: await bus() });
    await transaction(publisher, async (tx) => {
      for (const key of ['bad', 'last']) await publish(tx, key, 3);
    });
    const consumer = consume({
      handle: async (tx, event) => {
        if (event.aggregateSequence === (event.key === 'bad' ? 2n : 3n)) throw new PoisonEvent('no such thing');
        await record(tx, event);
      },
    });
    await until(async () => (await count(subscriber, 'dead_letter')) === 2 + 1);
    for (const key of ['bad', 'last'])
      expect(await skipFirst(subscriber, { consumer: 'subscriber', key })).toMatchObject({ type: 'thing.changed' });
    await until(async () => (await count(subscriber, 'dead_letter')) === 0);
    expect(await skipFirst(subscriber, { consumer: 'subscriber', key: 'bad' })).toBeUndefined();
    await transaction(publisher, async (tx) => {
      for (const key of ['bad', 'last']) await publish(tx, key, 2);
    });
    await until(async () => (await count(subscriber, 'applied')) === 2 + 2 + 4);
    expect(await appliedSequences(subscriber)).toEqual({ bad: '1,3,4,5', last: '1,2,4,5' });
    // Transactions of others in the same cluster may hold events back for a while.
    await until(async () => (await consumer.lag()).status === 'HEALTHY');
  });

  test('events that a transport lost are fetched from the outbox; a gap that was never published parks its key and is logged', async () => {
    const { publisher, subscriber, consume } = await world({
      bus: await bus(),
      loses: ({ key, sequence }) => key === 'a' && sequence % 3 !== 0,
    });
    await transaction(publisher, (tx) => publish(tx, 'a', 6));
    await transaction(publisher, (tx) => append(tx, [thing('holey', 1n), thing('holey', 3n)]));
    consume();
    await until(async () => (await count(subscriber, 'dead_letter')) === 1);
    await until(async () => (await count(subscriber, 'applied')) === 7);
    expect(await appliedSequences(subscriber)).toEqual({ a: upTo(6), holey: '1' });
    const letter = await row<{ error: string }>(subscriber, sql`select error from dead_letter`);
    expect(letter!.error).toBe('GapError: the events 2 to 2 of holey are missing');
  });

  test('events are read again from the start in another cluster, and applied only if they had not been', async () => {
    const { publisher, subscriber, consume } = await world({ bus: await bus() });
    await transaction(publisher, (tx) => publish(tx, 'a', 3));
    const consumer = consume();
    await until(async () => (await count(subscriber, 'applied')) === 3);
    await stopConsumer(consumer);
    // This is the state after a restore: transaction ids of another cluster, much higher than those of this one.
    await transaction(publisher, async (tx) => {
      await publish(tx, 'a', 2);
      await tx.query(`update outbox set xid = '9000000000000000000'`);
      await tx.query(`update outbox_reader set xid = '9000000000000000000', pos = 3`);
      await tx.query(`update outbox_epoch set cluster = 'another'`);
    });
    await subscriber.query(`update bus_cursor set xid = '9000000000000000000', pos = 3`);
    consume();
    await until(async () => (await count(subscriber, 'applied')) === 5);
    await transaction(publisher, (tx) => publish(tx, 'a', 2));
    await until(async () => (await count(subscriber, 'applied')) === 7);
    expect(await appliedSequences(subscriber)).toEqual({ a: upTo(7) });
  });
}
