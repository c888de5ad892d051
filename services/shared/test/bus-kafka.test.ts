import { randomUUID } from 'node:crypto';
import type { KafkaBus } from '@granary/shared/bus/bus';
import { discardRefused } from '../src/bus/dead-letter-requests';
import { toMessage } from '@granary/shared/bus/envelope';
import type { KafkaMessage } from '@granary/shared/kafka/messages';
import { kafkaTopics, topicPartitions } from '@granary/shared/bus/topics';
import { append } from '@granary/shared/bus/outbox';
import { createSignal } from '@granary/shared/concurrency/signal';
import type { Event } from '@granary/shared/gen/granary/events/v1/Event';
import { newCall } from '@granary/shared/rpc/types';
import type { Logger } from '@granary/shared/logger';
import { row, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { forgingSigner } from '@granary/testing/event-keys';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { describeWith } from '@granary/testing/stack';
import { startOwnKafka, type TestBroker } from './support/bus-broker';
import { Ledger } from './support/bus-ledger';
import { sharedBusTests } from './support/bus-suite';
import {
  appliedSequences,
  count,
  endWorlds,
  kafkaBus,
  log,
  openPool,
  publish,
  record,
  sendingBy,
  sessionTimeoutMs,
  stopConsumer,
  thing,
  until,
  untilApplied,
  upTo,
  world,
} from './support/bus-world';

/** If the machine becomes busy during the run, several waits of one test may each take up to their own limit. */
jest.setTimeout(limitMs(300_000));

/** The number of the last event that the relay has sent. */
const relayedUpTo = async (publisher: Pool) =>
  (await row<{ pos: bigint }>(publisher, sql`select pos from outbox_reader where consumer = 'kafka-relay'`))?.pos ?? 0n;

describeWith(describe, 'kafka')('events through Kafka', () => {
  let broker: TestBroker;
  beforeAll(async () => {
    broker = await startOwnKafka();
  });
  afterEach(async () => {
    await endWorlds();
    if (!broker.isUp()) await broker.start();
  });
  afterAll(() => broker?.stop());

  sharedBusTests(() => kafkaBus(broker.place), 10);

  test('forged events are refused: they have no effect, park nothing and delay no real one', async () => {
    const bus = await kafkaBus(broker.place);
    const { publisher, subscriber, source, consume } = await world({ bus });
    await transaction(publisher, async (tx) => {
      for (const key of ['a', 'b']) await publish(tx, key, 2);
    });
    await until(async () => (await relayedUpTo(publisher)) >= 4n);
    const call = newCall('test', limitMs(5_000));
    const { events } = await source.read({ consumer: 'test', after: null, limit: 10, topics: [], waitMs: 0 }, call);
    const real = events.find(({ key }) => key === 'a')!;
    const topic = kafkaTopics(bus.prefix).find((name) => name.endsWith('.data.usage'))!;
    const forged = (changes: Partial<Event>): KafkaMessage => {
      const event = { ...real, id: randomUUID(), payload: Buffer.from('{"value":"666"}'), ...changes };
      return toMessage({ ...event, signatures: forgingSigner.sign(event, ['blobs', 'finance']) }, topic);
    };
    const sender = await bus.kafka.openSender();
    await sender.send([
      // The next one of an aggregate; a later one; one of a new aggregate; one with the id of a real one; not an event.
      forged({ aggregateSequence: '3' }),
      forged({ aggregateSequence: '900' }),
      forged({ aggregateId: 'forged/1', aggregateSequence: '1', type: 'app.deleted' }),
      forged({ id: real.id }),
      forged({ key: 'b', aggregateId: 'b', aggregateSequence: '3', payload: Buffer.from('no JSON') }),
      // The signatures of a real one, for other content.
      { ...forged({}), headers: { ...forged({}).headers, signatures: real.signatures } },
      { topic, key: 'a', value: Buffer.from('x'), headers: {} },
    ]);
    await sender.close();
    await transaction(publisher, async (tx) => {
      for (const key of ['a', 'b']) await publish(tx, key, 3);
    });
    const consumer = consume();
    await until(async () => (await count(subscriber, 'applied')) === 10);
    expect(await appliedSequences(subscriber)).toEqual({ a: upTo(5), b: upTo(5) });
    expect(await count(subscriber, 'dead_letter')).toBe(0);
    const { rows: refused } = await subscriber.query<{ why: string }>('select why from refused_event order by why');
    expect(refused.map(({ why }) => why)).toEqual([
      'no event',
      ...Array<string>(6).fill('not signed by its publisher'),
    ]);
    expect((await subscriber.query(`select from bus_aggregate where agg_id not in ('a', 'b')`)).rowCount).toBe(0);
    expect((await consumer.lag()).message).toBe('7 messages to subscriber were refused, not signed by their publisher');
    expect(await discardRefused(subscriber, { consumer: 'subscriber' })).toBe(7);
    await until(async () => (await consumer.lag()).status === 'HEALTHY');
  });

  const seed = seedOf('shared/bus-kafka');
  const rebalances = size({ run: 7, long: 20 });
  test(`events of the seed ${seed} are applied once and in order through ${rebalances} rebalances under load`, async () => {
    const bus = await kafkaBus(broker.place);
    let joined = 0;
    const counting: KafkaBus = {
      ...bus,
      kafka: {
        ...bus.kafka,
        joinGroup: (group) =>
          bus.kafka.joinGroup({
            ...group,
            onJoined: () => {
              joined++;
              group.onJoined();
            },
          }),
      },
    };
    const { publisher, subscriber, consume } = await world({ size: 10, bus });
    const ledger = new Ledger(publisher, publisher, seededRandom(seed));
    const load = ledger.startLoad({ writers: 4, pauseMs: limitMs(20) });
    // This member stays: it joins once, and again with every rebalance.
    consume({ bus: counting });
    await until(async () => joined === 1);
    while (joined < 1 + rebalances) {
      const before = joined;
      const guest = consume();
      await until(async () => joined > before);
      const beside = joined;
      await stopConsumer(guest);
      await until(async () => joined > beside);
    }
    await load.stop();
    const events = await ledger.eventCount();
    await untilApplied(subscriber, events);
    expect(await ledger.findProblems(subscriber)).toEqual([]);
    expect(await count(subscriber, 'dead_letter')).toBe(0);
  });

  test('events that Kafka lost with its disk are read from the outbox, and a missing topic is reported until it exists', async () => {
    const bus = await kafkaBus(broker.place);
    const { publisher, subscriber, consume, relaying } = await world({ bus });
    const stopped = consume();
    await transaction(publisher, (tx) => publish(tx, 'first', 20));
    await until(async () => (await count(subscriber, 'applied')) === 20);
    await stopConsumer(stopped);
    // The relay has sent them and will not send them again.
    await transaction(publisher, (tx) => publish(tx, 'lost', 300));
    await until(async () => (await relayedUpTo(publisher)) === 320n);
    await broker.kill();
    await broker.loseDisk();
    await broker.start();

    const consumer = consume({ kafkaTimes: { sessionTimeoutMs, sweepAfterMs: 1_000 } });
    await transaction(publisher, (tx) => publish(tx, 'later', 20));
    await until(async () => (await count(subscriber, 'applied')) === 340);
    await until(async () => (await consumer.lag()).status === 'DEGRADED');
    const missing = `Kafka has no topic ${bus.prefix}.data.usage: run npm run bus:topics`;
    await until(async () => (await consumer.lag()).message === missing);
    await until(async () => (await relaying!.check()).message?.startsWith('Kafka has no topic') === true);
    await bus.kafka.createTopics(kafkaTopics(bus.prefix), topicPartitions);
    await until(async () => (await consumer.lag()).message !== missing);
    await until(async () => (await relaying!.check()).status === 'HEALTHY');
    await stopConsumer(consumer);
    // These events come through Kafka, because the sweep is not due. The offsets in the database are beyond the end of
    // the topic.
    consume();
    await transaction(publisher, (tx) => publish(tx, 'new', 20));
    await until(async () => (await count(subscriber, 'applied')) === 360);
    expect(await appliedSequences(subscriber)).toEqual({
      first: upTo(20),
      lost: upTo(300),
      later: upTo(20),
      new: upTo(20),
    });
  });

  test('events are still applied after the group has expelled a member during its work and refused its offsets', async () => {
    const refused: string[] = [];
    const listening = Object.assign(Object.create(log) as Logger, {
      debug: (_: object, message: string) => {
        if (message.startsWith('Response OffsetCommit')) refused.push(message);
      },
    });
    const bus = await kafkaBus(broker.place, { logger: listening });
    const { publisher, subscriber, consume } = await world({ bus });
    consume({
      kafkaTimes: { sessionTimeoutMs: 1_000, sweepAfterMs: 600_000 },
      handle: async (tx, event) => {
        await record(tx, event);
        // Like a suspended process: it sends no heartbeats.
        if (event.aggregateSequence === 3n) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3_000);
      },
    });
    await transaction(publisher, (tx) => publish(tx, 'a', 5));
    await until(async () => refused.length > 0);
    await transaction(publisher, (tx) => publish(tx, 'a', 5));
    await until(async () => (await count(subscriber, 'applied')) === 10);
    expect(await appliedSequences(subscriber)).toEqual({ a: upTo(10) });
  });

  test('events are read again after the database was restored, although the offsets of the group are higher', async () => {
    const { publisher, subscriber, consume } = await world({ bus: await kafkaBus(broker.place) });
    const consumer = consume();
    await transaction(publisher, async (tx) => {
      for (let key = 0; key < 12; key++) await publish(tx, `key-${key}`, 5);
    });
    await until(async () => (await count(subscriber, 'applied')) === 60);
    await stopConsumer(consumer);
    // The backup was made before anything was applied.
    await subscriber.query('truncate applied, inbox, bus_aggregate; update bus_offset set next = 0');
    consume();
    await until(async () => (await count(subscriber, 'applied')) === 60);
    expect(await appliedSequences(subscriber)).toEqual(
      Object.fromEntries(Array.from({ length: 12 }, (_, key) => [`key-${key}`, upTo(5)])),
    );
  });

  test('one of two replicas relays events; when it is suspended the other one takes over, and late sends have no effect', async () => {
    const bus = await kafkaBus(broker.place);
    const { publisher, subscriber, consume, relaying, relayOn, appended } = await world({
      bus,
      relay: { leaseMs: 1_000 },
    });
    await relaying!.stop();
    const pausedPool = openPool(publisher.options.connectionString!, 2);
    const goOn = createSignal();
    const held = createSignal();
    let sentLate = 0;
    const isHeld = held.wait(limitMs(60_000));
    const paused = relayOn({
      pool: pausedPool,
      bus: sendingBy(bus, async (messages, send) => {
        const resumed = goOn.wait(limitMs(240_000));
        held.notify();
        await resumed;
        await send(messages);
        sentLate += messages.length;
      }),
    });
    await transaction(publisher, (tx) => publish(tx, 'a', 50));
    appended.notify();
    await isHeld;
    // From here on it cannot renew its lease, like a suspended process.
    const query = jest.spyOn(pausedPool, 'query').mockImplementation(() => {
      throw new Error('paused');
    });
    relayOn();
    consume();
    await until(async () => (await count(subscriber, 'applied')) === 50);
    await transaction(publisher, (tx) => publish(tx, 'a', 50));
    await until(async () => (await count(subscriber, 'applied')) === 100);
    await until(async () => (await relayedUpTo(publisher)) === 100n);
    query.mockRestore();
    goOn.notify();
    await until(async () => sentLate === 50);
    await paused.stop();
    expect(await relayedUpTo(publisher)).toBe(100n);
    await transaction(publisher, (tx) => publish(tx, 'a', 50));
    await until(async () => (await count(subscriber, 'applied')) === 150);
    expect(await appliedSequences(subscriber)).toEqual({ a: upTo(150) });
    // Only the batch that it was sending came twice: it neither continued nor moved the position back.
    const ends = await bus.kafka.ranges([`${bus.prefix}.data.usage`]);
    expect(ends.reduce((sum, { high }) => sum + Number(high), 0)).toBe(150 + 50);
  });

  test('events of the largest size are sent in batches that the broker accepts', async () => {
    const { publisher, subscriber, consume } = await world({ bus: await kafkaBus(broker.place) });
    const lengths: number[] = [];
    consume({ handle: async (_, event) => void lengths.push(String(event.payload['value']).length) });
    const value = 'x'.repeat(65_000);
    await transaction(publisher, (tx) =>
      append(
        tx,
        Array.from({ length: 40 }, (_, at) => thing('large', BigInt(at + 1), value)),
      ),
    );
    await until(
      async () => (await row<{ seq: bigint }>(subscriber, sql`select last_seq as seq from bus_aggregate`))?.seq === 40n,
    );
    expect(new Set(lengths)).toEqual(new Set([65_000]));
  });

  test('events are read from the outbox while a client is stuck, which is replaced, and after three replacements the consumer fails', async () => {
    const bus = await kafkaBus(broker.place);
    let members = 0;
    const stuck = {
      ...bus,
      kafka: {
        ...bus.kafka,
        // As happens with kafkajs: in the group, without an error, and without messages.
        joinGroup: () => {
          members++;
          return {
            ended: new Promise<never>(() => {}),
            assignment: Array.from({ length: topicPartitions }, (_, partition) => ({
              topic: `${bus.prefix}.data.usage`,
              partition,
              next: undefined,
            })),
            progressMs: 0,
            isBusy: false,
            hasProcessed: false,
            stop: () => Promise.resolve(),
          };
        },
      },
    };
    const { publisher, subscriber, consume } = await world({ bus });
    const consumer = consume({
      bus: stuck,
      kafkaTimes: { stuckMs: 300, sweepAfterMs: 600_000, sessionTimeoutMs },
    });
    // There are no messages yet, so no member is stuck.
    await until(async () => members === 1);
    await transaction(publisher, (tx) => publish(tx, 'a', 5));
    await expect(consumer.failed).rejects.toThrow('the consumer subscriber makes no progress with Kafka');
    expect(members).toBeGreaterThanOrEqual(3);
    await stopConsumer(consumer);
    consume({ bus: stuck, kafkaTimes: { stuckMs: 300, sweepAfterMs: 100, sessionTimeoutMs } });
    await until(async () => (await count(subscriber, 'applied')) === 5);
    expect(await appliedSequences(subscriber)).toEqual({ a: upTo(5) });
  });

  test('sending events sets no timer with a negative delay, which Node warns about', async () => {
    const timers = jest.spyOn(globalThis, 'setTimeout');
    try {
      const { publisher, subscriber, consume } = await world({ bus: await kafkaBus(broker.place) });
      consume();
      await transaction(publisher, (tx) => publish(tx, 'a', 5));
      await until(async () => (await count(subscriber, 'applied')) === 5);
      await endWorlds();
      expect(timers.mock.calls.filter(([, ms]) => Number(ms) < 0)).toEqual([]);
      expect(timers.mock.calls.length).toBeGreaterThan(10);
    } finally {
      timers.mockRestore();
    }
  });
});
