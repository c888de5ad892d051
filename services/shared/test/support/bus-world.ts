import { randomUUID } from 'node:crypto';
import type { KafkaBus } from '@granary/shared/bus/bus';
import { startConsumer } from '@granary/shared/bus/start-consumer';
import type { Consumer, ConsumerOptions } from '@granary/shared/bus/consumer';
import { prepareOutbox } from '@granary/shared/bus/epoch';
import type { Handle } from '@granary/shared/bus/inbox';
import { openKafka } from '@granary/shared/kafka/client';
import type { BrokerOptions } from '@granary/shared/kafka/broker-options';
import type { Sender } from '@granary/shared/kafka/sender';
import type { KafkaMessage } from '@granary/shared/kafka/messages';
import { busMigrations } from '@granary/shared/bus/migrations';
import { append, outboxDefinition, outboxImplementation, type OutgoingEvent } from '@granary/shared/bus/outbox';
import { start } from '@granary/shared/bus/position';
import { KafkaRelay, type RelayOptions } from '@granary/shared/bus/kafka-relay';
import { createSignal } from '@granary/shared/concurrency/signal';
import { kafkaTopics, topicPartitions } from '@granary/shared/bus/topics';
import { openClient } from '@granary/shared/grpc/client';
import { createLogger } from '@granary/shared/logger';
import { applyMigrations } from '@granary/shared/postgres/migrate';
import { createPool, execute, row, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { testSigner, testVerifier } from '@granary/testing/event-keys';
import { testDatabase } from '@granary/testing/database';
import { limitMs } from '@granary/testing/speed';

/** Short, because a member notices a rebalance at its next heartbeat, six of which fit into this. */
export const sessionTimeoutMs = 4_000;

export const log = createLogger('bus-test', process.env['BUS_TEST_LOG'] ?? 'silent');

const pools: Pool[] = [];
const consumers = new Set<Consumer>();
const relays = new Set<KafkaRelay>();

/** Ends everything that worlds of this test have begun. */
export async function endWorlds(): Promise<void> {
  await Promise.all([...consumers].map((consumer) => consumer.stop()));
  consumers.clear();
  await Promise.all([...relays].map((relay) => relay.stop()));
  relays.clear();
  await Promise.all(pools.splice(0).map((pool) => pool.end()));
}

export async function stopConsumer(consumer: Consumer): Promise<void> {
  await consumer.stop();
  consumers.delete(consumer);
}

export function openPool(url: string, size: number): Pool {
  const pool = createPool({ url, size, applicationName: 'bus-test', log });
  pools.push(pool);
  return pool;
}

export const publisherTables = `create table counter (name text primary key, seq bigint not null);
  create table noise (number bigint generated always as identity);
  create table written (write bigint)`;
export const subscriberTables =
  'create table applied (number bigint generated always as identity, id uuid, key text, seq bigint, value bigint)';

export async function prepareDatabase(pool: Pool, tables: string): Promise<void> {
  await applyMigrations(pool, 'bus', busMigrations);
  await prepareOutbox(pool);
  await pool.query(tables);
}

async function database(size: number, tables: string): Promise<Pool> {
  const pool = openPool((await testDatabase()).url, size);
  await prepareDatabase(pool, tables);
  return pool;
}

/** A deployment of its own on a broker: its topics are there. */
export async function kafkaBus(place: BrokerOptions, { topics = true, logger = log } = {}): Promise<KafkaBus> {
  const prefix = `test-${randomUUID().slice(0, 8)}`;
  const kafka = openKafka({ ...place, clientId: 'bus-test', log: logger });
  if (topics) await kafka.createTopics(kafkaTopics(prefix), topicPartitions);
  return { kafka, prefix };
}

export interface WorldOptions {
  /** Connections of the publisher. */
  size?: number;
  /** Absent: consumers read the outbox. */
  bus?: KafkaBus | undefined;
  relay?: Partial<RelayOptions>;
  /** Events that the transport drops. */
  loses?: (event: { key: string; sequence: number }) => boolean;
}

/** The service data, which publishes, and one that consumes, each with a database of its own. */
export async function world({ size = 4, bus: given, relay, loses = () => false }: WorldOptions = {}) {
  const publisher = await database(size, publisherTables);
  const subscriber = await database(8, subscriberTables);
  const appended = createSignal();
  const outbox = openClient(
    outboxDefinition,
    { implementation: outboxImplementation({ pool: publisher, log, signer: testSigner, appended }) },
    { log },
  ).client;
  const source: typeof outbox = {
    ...outbox,
    read: async (request, call) => {
      const response = await outbox.read(request, call);
      if (given) return response;
      const events = response.events.filter(
        (event) => !loses({ key: event.key, sequence: Number(event.aggregateSequence) }),
      );
      // The page is signed as by a publisher that has not found the lost events.
      const { consumer, topics, after } = request;
      const page = { consumer, topics, after: after ?? start, next: response.next ?? start, events };
      return { ...response, events, signatures: testSigner.signPage(page, consumer) };
    },
  };
  const bus = given && losing(given, loses);
  const relayOn = (options: Partial<RelayOptions> = {}) => {
    const started = new KafkaRelay({
      pool: publisher,
      log,
      bus: bus!,
      service: 'data',
      signer: testSigner,
      appended,
      ...relay,
      ...options,
    });
    relays.add(started);
    return started;
  };
  const relaying = bus && relayOn();
  const consume = (options: Partial<ConsumerOptions> = {}) => {
    const consumer = startConsumer({
      pool: subscriber,
      log,
      bus,
      source,
      verifier: testVerifier,
      name: 'subscriber',
      from: 'data',
      topics: ['usage'],
      handle: record,
      pollMs: { min: 5, max: 20 },
      attempts: 2,
      kafkaTimes: { sessionTimeoutMs, sweepAfterMs: 600_000 },
      ...options,
    });
    consumers.add(consumer);
    return consumer;
  };
  return { publisher, subscriber, appended, source, consume, relaying, relayOn };
}

/** Returns the same Kafka, except that its senders send by `send`, which is given the original function. */
export function sendingBy(
  bus: KafkaBus,
  send: (messages: readonly KafkaMessage[], original: Sender['send']) => Promise<void>,
): KafkaBus {
  const openSender = async (): Promise<Sender> => {
    const sender = await bus.kafka.openSender();
    return { ...sender, send: (messages) => send(messages, (each) => sender.send(each)) };
  };
  return { ...bus, kafka: { ...bus.kafka, openSender } };
}

/** Returns the same Kafka, except that some messages are never sent. */
function losing(bus: KafkaBus, loses: NonNullable<WorldOptions['loses']>): KafkaBus {
  return sendingBy(bus, async (messages, send) => {
    const left = messages.filter(({ key, headers }) => !loses({ key, sequence: Number(headers['sequence']) }));
    if (left.length > 0) await send(left);
  });
}

export const record: Handle = async (tx, event) => {
  await execute(
    tx,
    sql`insert into applied (id, key, seq, value)
      values (${event.id}, ${event.key}, ${event.aggregateSequence}, ${String(event.payload['value'])}::bigint)`,
  );
};

export function thing(key: string, sequence: bigint, value: unknown = sequence.toString()): OutgoingEvent {
  return {
    topic: 'usage',
    key,
    aggregateId: key,
    aggregateSequence: sequence,
    type: 'thing.changed',
    payload: { value },
  };
}

/**
 * Publishes the next events of a key, in a transaction that takes their numbers under the lock of the key. Answers the
 * first of these; `valueOf` makes the value of the event at a place among them.
 */
export async function publish(
  tx: Connection,
  key: string,
  count: number,
  valueOf?: (at: number) => bigint,
): Promise<bigint> {
  const counter = await row<{ seq: bigint }>(
    tx,
    sql`insert into counter (name, seq) values (${key}, ${count})
      on conflict (name) do update set seq = counter.seq + ${count} returning seq`,
  );
  const first = counter!.seq - BigInt(count) + 1n;
  await append(
    tx,
    Array.from({ length: count }, (_, at) => thing(key, first + BigInt(at), valueOf?.(at).toString())),
  );
  return first;
}

/** Waits until so many events are applied; fails when none is for a minute. */
export async function untilApplied(subscriber: Pool, total: number): Promise<void> {
  let applied = -1;
  const hasProgress = async () => {
    // A connection may have been cut.
    const now = await count(subscriber, 'applied').catch(() => applied);
    const isProgress = now > applied;
    applied = now;
    return isProgress || applied >= total;
  };
  while (applied < total) await until(hasProgress, 60_000, 100);
}

export async function until(condition: () => Promise<boolean>, timeoutMs = 60_000, everyMs = 20): Promise<void> {
  const deadlineMs = performance.now() + limitMs(timeoutMs);
  while (!(await condition())) {
    if (performance.now() > deadlineMs) throw new Error('the condition was not met in time');
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
}

export async function count(pool: Pool, table: 'applied' | 'dead_letter'): Promise<number> {
  const statement =
    table === 'applied' ? sql`select count(*) as count from applied` : sql`select count(*) as count from dead_letter`;
  return Number((await row<{ count: bigint }>(pool, statement))!.count);
}

/** The sequence numbers that were applied, by key, in the order in which that happened. */
export async function appliedSequences(pool: Pool): Promise<Record<string, string>> {
  const found = await rows<{ key: string; seqs: string }>(
    pool,
    sql`select key, string_agg(seq::text, ',' order by number) as seqs from applied group by key`,
  );
  return Object.fromEntries(found.map((each) => [each.key, each.seqs]));
}

/** The sequence numbers that should have been applied by now, in the same form. */
export async function publishedSequences(pool: Pool): Promise<{ total: number; sequences: Record<string, string> }> {
  const written = await rows<{ name: string; seq: bigint }>(pool, sql`select name, seq from counter`);
  return {
    total: written.reduce((sum, each) => sum + Number(each.seq), 0),
    sequences: Object.fromEntries(written.map((each) => [each.name, upTo(Number(each.seq))])),
  };
}

export const upTo = (last: number) => Array.from({ length: last }, (_, at) => at + 1).join(',');
