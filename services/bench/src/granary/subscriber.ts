import { setTimeout as delay } from 'node:timers/promises';
import type { OutboxDefinition } from '@granary/shared/gen/granary/events/v1/Outbox';
import type { Consumer } from '@granary/shared/bus/consumer';
import type { BusEvent } from '@granary/shared/bus/inbox';
import { startConsumer } from '@granary/shared/bus/start-consumer';
import { openKafka } from '@granary/shared/kafka/client';
import { busMigrations } from '@granary/shared/bus/migrations';
import { outboxDefinition } from '@granary/shared/bus/outbox';
import { openClient, type OpenClient } from '@granary/shared/grpc/client';
import { createLogger } from '@granary/shared/logger';
import { applyMigrations } from '@granary/shared/postgres/migrate';
import { createPool, execute, row, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { openTrust } from '@granary/shared/trust/trust';
import { serve } from '../child';
import { eventsSecret } from './events-secret';
import type { KafkaOptions } from './publisher';

/** A consuming service: each event inserts one row by one statement. */
const pollMs = 5;

const log = createLogger('bench', 'error');
// `stop` may come before `prepare` and `start` have set these.
let pool: Pool;
let consumer: Consumer | undefined;
let outbox: OpenClient<OutboxDefinition> | undefined;

async function handle(tx: Connection, { key, aggregateSequence, payload }: BusEvent): Promise<void> {
  const values = sql`${key}, ${aggregateSequence}::bigint, ${payload['bytes']}::bigint`;
  // The notification is delivered at the commit.
  const effect = payload['isTold']
    ? sql`select ${values} from pg_notify('applied', ${`${key} ${aggregateSequence}`})`
    : sql`values (${values})`;
  await execute(tx, sql`insert into applied (key, seq, bytes) ${effect}`);
}

/** Events and sequence numbers of aggregates are committed together, so their sum is the number of applied events. */
async function appliedCount(): Promise<number> {
  const sum = await row<{ count: bigint }>(
    pool,
    sql`select coalesce(sum(last_seq), 0)::bigint as count from bus_aggregate`,
  );
  return Number(sum!.count);
}

const calls = {
  prepare: async ({ databaseUrl }: { databaseUrl: string }) => {
    pool = createPool({ url: databaseUrl, size: 8, applicationName: 'bench-subscriber', log });
    await applyMigrations(pool, 'bus', busMigrations);
    await pool.query('create table applied (key text, seq bigint, bytes bigint)');
  },
  start: async ({ outboxAddress, kafka }: { outboxAddress: string; kafka?: KafkaOptions }) => {
    outbox = openClient(outboxDefinition, { address: outboxAddress }, { log });
    const bus = kafka && {
      kafka: openKafka({ ...kafka.place, clientId: 'bench-subscriber', log }),
      prefix: kafka.prefix,
    };
    consumer = startConsumer({
      pool,
      log,
      ...(bus && { bus }),
      handle,
      name: 'finance-bench',
      from: 'data',
      source: outbox.client,
      topics: ['usage'],
      verifier: openTrust('finance', { INTERNAL_SECRET: eventsSecret }, log).verifier('data'),
    });
  },
  appliedCount,
  untilApplied: async (events: number) => {
    while ((await appliedCount()) < events) await delay(pollMs);
  },
  /** The number of effects, to be compared with the events. */
  effectsCount: async () => {
    const counted = await row<{ count: bigint }>(pool, sql`select count(*) as count from applied`);
    return Number(counted!.count);
  },
  stop: async () => {
    await consumer?.stop();
    outbox?.close();
    await pool?.end();
  },
};

export type SubscriberCalls = typeof calls;

serve(calls);
