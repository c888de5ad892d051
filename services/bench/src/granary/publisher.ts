import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { prepareOutbox } from '@granary/shared/bus/epoch';
import { openKafka } from '@granary/shared/kafka/client';
import { busMigrations } from '@granary/shared/bus/migrations';
import { append, outboxImplementation } from '@granary/shared/bus/outbox';
import { KafkaRelay } from '@granary/shared/bus/kafka-relay';
import { createSignal } from '@granary/shared/concurrency/signal';
import { kafkaTopics, topicPartitions } from '@granary/shared/bus/topics';
import { startServer } from '@granary/shared/grpc/server';
import { createLogger } from '@granary/shared/logger';
import { applyMigrations } from '@granary/shared/postgres/migrate';
import { createPool } from '@granary/shared/postgres/pool';
import { transaction } from '@granary/shared/postgres/transaction';
import { openTrust } from '@granary/shared/trust/trust';
import { serve } from '../child.mjs';
import { eventsSecret } from './events-secret.mjs';

/** A publishing service: writers, its outbox over gRPC, and with Kafka the relay. */
const writers = 16;
const keysOfWriter = 4;
const eventsOfTransaction = 20;
/** Events per transaction in the latency measurement. */
const pacedEvents = 5;

// As many signatures as in production: the relay signs once per service that reads the topic.
const { signer } = openTrust('data', { INTERNAL_SECRET: eventsSecret }, createLogger('bench', 'error'));
const log = createLogger('bench', 'error');
const appended = createSignal();
const sequences = new Map();
let pool;
let server;
let relay;
let listener;
/** Acknowledgement times of commits whose effects are pending. */
const waiting = new Map();
let delaysMs = [];

/** Commits the next events of a key in one transaction. Each key has one writer. */
async function publish(key, count, isTold) {
  const last = sequences.get(key) ?? 0n;
  const events = Array.from({ length: count }, (_, at) => ({
    topic: 'usage',
    key,
    aggregateId: key,
    aggregateSequence: last + BigInt(at) + 1n,
    type: 'thing.changed',
    payload: { app: 'bench', collection: key, bytes: '123456', isTold },
  }));
  await transaction(pool, (tx) => append(tx, events));
  sequences.set(key, last + BigInt(count));
  const committedMs = performance.now();
  appended.notify();
  if (isTold) for (const { aggregateSequence } of events) waitFor(`${key} ${aggregateSequence}`, committedMs);
}

/** The notification of an effect can arrive before the acknowledgement of its commit. */
function waitFor(event, committedMs) {
  if (waiting.delete(event)) delaysMs.push(0);
  else waiting.set(event, committedMs);
}

function told({ payload: event }) {
  const committedMs = waiting.get(event);
  if (committedMs === undefined) waiting.set(event, undefined);
  else {
    waiting.delete(event);
    delaysMs.push(performance.now() - committedMs);
  }
}

serve({
  /** Returns the address of the outbox. `kafka` is `{place, prefix}`; without it consumers read the outbox. */
  start: async ({ databaseUrl, subscriberUrl, kafka }) => {
    pool = createPool({ url: databaseUrl, size: writers + 4, applicationName: 'bench-publisher', log });
    await applyMigrations(pool, 'bus', busMigrations);
    await prepareOutbox(pool);
    server = await startServer('127.0.0.1:0', [outboxImplementation({ pool, log, signer, appended })], log);
    if (kafka) {
      const client = openKafka({ ...kafka.place, clientId: 'bench-publisher', log });
      await client.createTopics(kafkaTopics(kafka.prefix), topicPartitions);
      const bus = { kafka: client, prefix: kafka.prefix };
      relay = new KafkaRelay({ pool, log, bus, service: 'data', signer, appended });
    }
    listener = new pg.Client({ connectionString: subscriberUrl });
    await listener.connect();
    listener.on('notification', told);
    await listener.query('listen applied');
    return { address: server.address };
  },

  /** Publishes as fast as possible for a time, 1 to 20 events per transaction. Returns their number. */
  publishFor: async (seconds) => {
    const endsMs = performance.now() + seconds * 1000;
    let events = 0;
    const write = async (_, writer) => {
      while (performance.now() < endsMs) {
        const key = `${writer}-${Math.floor(Math.random() * keysOfWriter)}`;
        const count = 1 + Math.floor(Math.random() * eventsOfTransaction);
        await publish(key, count, false);
        events += count;
      }
    };
    await Promise.all(Array.from({ length: writers }, write));
    return { events };
  },

  /** Publishes at a fixed rate for a time. Returns the ascending latencies of all events, from commit to commit. */
  publishAt: async ({ perSecond, seconds }) => {
    delaysMs = [];
    const startedMs = performance.now();
    const transactions = Math.ceil((perSecond * seconds) / pacedEvents);
    const free = Array.from({ length: writers }, (_, writer) => `paced-${writer}`);
    const running = new Set();
    for (let at = 0; at < transactions; at++) {
      await delay(startedMs + (at * pacedEvents * 1000) / perSecond - performance.now());
      while (free.length === 0) await Promise.race(running);
      const key = free.shift();
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
});
