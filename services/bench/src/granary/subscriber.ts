import { setTimeout as delay } from 'node:timers/promises';
import { startConsumer } from '@granary/shared/bus/start-consumer';
import { openKafka } from '@granary/shared/kafka/client';
import { busMigrations } from '@granary/shared/bus/migrations';
import { outboxDefinition } from '@granary/shared/bus/outbox';
import { openClient } from '@granary/shared/grpc/client';
import { createLogger } from '@granary/shared/logger';
import { applyMigrations } from '@granary/shared/postgres/migrate';
import { createPool, execute, row } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { openTrust } from '@granary/shared/trust/trust';
import { serve } from '../child.mjs';
import { eventsSecret } from './events-secret.mjs';

/** A consuming service: each event inserts one row by one statement. */
const pollMs = 5;

const log = createLogger('bench', 'error');
let pool;
let consumer;
let outbox;

async function handle(tx, { key, aggregateSequence, payload }) {
  const values = sql`${key}, ${aggregateSequence}::bigint, ${payload.bytes}::bigint`;
  // The notification is delivered at the commit.
  const effect = payload.isTold
    ? sql`select ${values} from pg_notify('applied', ${`${key} ${aggregateSequence}`})`
    : sql`values (${values})`;
  await execute(tx, sql`insert into applied (key, seq, bytes) ${effect}`);
}

/** Events and sequence numbers of aggregates are committed together, so their sum is the number of applied events. */
async function appliedCount() {
  const found = await row(pool, sql`select coalesce(sum(last_seq), 0)::bigint as count from bus_aggregate`);
  return Number(found.count);
}

serve({
  prepare: async ({ databaseUrl }) => {
    pool = createPool({ url: databaseUrl, size: 8, applicationName: 'bench-subscriber', log });
    await applyMigrations(pool, 'bus', busMigrations);
    await pool.query('create table applied (key text, seq bigint, bytes bigint)');
  },
  start: async ({ outboxAddress, kafka }) => {
    outbox = openClient(outboxDefinition, { address: outboxAddress }, { log });
    const bus = kafka && {
      kafka: openKafka({ ...kafka.place, clientId: 'bench-subscriber', log }),
      prefix: kafka.prefix,
    };
    consumer = startConsumer({
      pool,
      log,
      bus,
      handle,
      name: 'finance-bench',
      from: 'data',
      source: outbox.client,
      topics: ['usage'],
      verifier: openTrust('finance', { INTERNAL_SECRET: eventsSecret }, log).verifier('data'),
    });
  },
  appliedCount,
  untilApplied: async (events) => {
    while ((await appliedCount()) < events) await delay(pollMs);
  },
  /** The number of effects, to be compared with the events. */
  effectsCount: async () => Number((await row(pool, sql`select count(*) as count from applied`)).count),
  stop: async () => {
    await consumer?.stop();
    outbox?.close();
    await pool?.end();
  },
});
