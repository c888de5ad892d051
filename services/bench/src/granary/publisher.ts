import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { prepareOutbox } from '@granary/shared/bus/epoch';
import type { BrokerOptions } from '@granary/shared/kafka/broker-options';
import { openKafka } from '@granary/shared/kafka/client';
import { busMigrations } from '@granary/shared/bus/migrations';
import { append, outboxImplementation } from '@granary/shared/bus/outbox';
import { KafkaRelay } from '@granary/shared/bus/kafka-relay';
import { createSignal } from '@granary/shared/concurrency/signal';
import { kafkaTopics, topicPartitions } from '@granary/shared/bus/topics';
import { startServer, type GrpcServer } from '@granary/shared/grpc/server';
import { createLogger } from '@granary/shared/logger';
import { applyMigrations } from '@granary/shared/postgres/migrate';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { transaction } from '@granary/shared/postgres/transaction';
import { openTrust } from '@granary/shared/trust/trust';
import { serve } from '../child';
import { eventsSecret } from './events-secret';

/** A publishing service: writers, its outbox over gRPC, and with Kafka the relay. */
const writers = 16;
const keysOfWriter = 4;
const eventsOfTransaction = 20;
/** Events per transaction in the latency measurement. */
const pacedEvents = 5;

// There are as many signatures as in production: the relay signs once per service that reads the topic.
const { signer } = openTrust('data', { INTERNAL_SECRET: eventsSecret }, createLogger('bench', 'error'));
const log = createLogger('bench', 'error');
const appendSignal = createSignal();
const sequences = new Map<string, bigint>();
// `stop` may come before `start` has set these.
let pool: Pool;
let server: GrpcServer | undefined;
let relay: KafkaRelay | undefined;
let listener: pg.Client | undefined;
/**
 * Acknowledgement times of commits whose effects are pending; undefined for effects whose acknowledgement is pending.
 */
const pendingMs = new Map<string, number | undefined>();
let delaysMs: number[] = [];

/** How to reach Kafka, and the prefix of the names of topics. */
export interface KafkaOptions {
  place: BrokerOptions;
  prefix: string;
}

interface Start {
  databaseUrl: string;
  /** The URL of the database on which the subscriber notifies of its effects. */
  subscriberUrl: string;
  /** The Kafka that carries the events; without it consumers read the outbox. */
  kafka?: KafkaOptions;
}

/** Commits the next events of a key in one transaction. Each key has one writer. */
async function publish(key: string, count: number, isTold: boolean): Promise<void> {
  const last = sequences.get(key) ?? 0n;
  const events = Array.from({ length: count }, (_, index) => ({
    topic: 'usage',
    key,
    aggregateId: key,
    aggregateSequence: last + BigInt(index) + 1n,
    type: 'thing.changed',
    payload: { app: 'bench', collection: key, bytes: '123456', isTold },
  }));
  await transaction(pool, (tx) => append(tx, events));
  sequences.set(key, last + BigInt(count));
  const committedMs = performance.now();
  appendSignal.notify();
  if (isTold) for (const { aggregateSequence } of events) waitFor(`${key} ${aggregateSequence}`, committedMs);
}

/** The notification of an effect can arrive before the acknowledgement of its commit. */
function waitFor(event: string, committedMs: number): void {
  if (pendingMs.delete(event)) delaysMs.push(0);
  else pendingMs.set(event, committedMs);
}

function onNotification({ payload: event = '' }: pg.Notification): void {
  const committedMs = pendingMs.get(event);
  if (committedMs === undefined) pendingMs.set(event, undefined);
  else {
    pendingMs.delete(event);
    delaysMs.push(performance.now() - committedMs);
  }
}

const calls = {
  /** Returns the address of the outbox. */
  start: async ({ databaseUrl, subscriberUrl, kafka }: Start) => {
    pool = createPool({ url: databaseUrl, size: writers + 4, applicationName: 'bench-publisher', log });
    await applyMigrations(pool, 'bus', busMigrations);
    await prepareOutbox(pool);
    server = await startServer(
      '127.0.0.1:0',
      [outboxImplementation({ pool, log, signer, appended: appendSignal })],
      log,
    );
    if (kafka) {
      const client = openKafka({ ...kafka.place, clientId: 'bench-publisher', log });
      await client.createTopics(kafkaTopics(kafka.prefix), topicPartitions);
      const bus = { kafka: client, prefix: kafka.prefix };
      relay = new KafkaRelay({ pool, log, bus, service: 'data', signer, appended: appendSignal });
    }
    listener = new pg.Client({ connectionString: subscriberUrl });
    await listener.connect();
    listener.on('notification', onNotification);
    await listener.query('listen applied');
    return { address: server.address };
  },

  /** Publishes as fast as possible for a time, 1 to 20 events per transaction. Returns their number. */
  publishFor: async (seconds: number) => {
    const endsMs = performance.now() + seconds * 1000;
    let events = 0;
    const write = async (writer: number) => {
      while (performance.now() < endsMs) {
        const key = `${writer}-${Math.floor(Math.random() * keysOfWriter)}`;
        const count = 1 + Math.floor(Math.random() * eventsOfTransaction);
        await publish(key, count, false);
        events += count;
      }
    };
    await Promise.all(Array.from({ length: writers }, (_, writer) => write(writer)));
    return { events };
  },

  /** Publishes at a fixed rate for a time. Returns the ascending latencies of all events, from commit to commit. */
  publishAt: async ({ perSecond, seconds }: { perSecond: number; seconds: number }) => {
    delaysMs = [];
    const startedMs = performance.now();
    const transactions = Math.ceil((perSecond * seconds) / pacedEvents);
    const free = Array.from({ length: writers }, (_, writer) => `paced-${writer}`);
    const running = new Set<Promise<void>>();
    for (let index = 0; index < transactions; index++) {
      await delay(startedMs + (index * pacedEvents * 1000) / perSecond - performance.now());
      while (free.length === 0) await Promise.race(running);
      const key = free.shift()!;
      const one = publish(key, pacedEvents, true).then(() => {
        free.push(key);
        running.delete(one);
      });
      running.add(one);
    }
    await Promise.all(running);
    while (delaysMs.length < transactions * pacedEvents) await delay(10);
    return delaysMs.sort((a, b) => a - b);
  },

  stop: async () => {
    await relay?.stop();
    await server?.stop();
    await listener?.end();
    await pool?.end();
  },
};

export type PublisherCalls = typeof calls;

serve(calls);
