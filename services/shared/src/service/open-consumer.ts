import type { Consumer } from '../bus/consumer';
import type { Handle } from '../bus/inbox';
import { outboxDefinition } from '../bus/outbox';
import { startConsumer } from '../bus/start-consumer';
import type { OutboxDefinition } from '../gen/granary/events/v1/Outbox';
import { openClient, type Target } from '../grpc/client';
import type { ServiceName } from '../trust/services';
import type { Context } from './start';

export interface Consumption {
  /** See `ConsumerOptions`. */
  name: string;
  from: ServiceName;
  topics: string[];
  handle: Handle;
  /** The outbox of that service. */
  outbox: Target<OutboxDefinition>;
}

/** Consumes the events of another service until this one stops. */
export function openConsumer(
  { pool, log, bus, trust, onStop }: Pick<Context, 'pool' | 'log' | 'bus' | 'trust' | 'onStop'>,
  { name, from, topics, handle, outbox }: Consumption,
): Consumer {
  const client = openClient(outboxDefinition, outbox, { log, credentials: () => trust.towards(from) });
  onStop(() => client.close());
  const verifier = trust.verifier(from);
  const consumer = startConsumer({ pool, log, bus, name, from, topics, handle, verifier, source: client.client });
  onStop(() => consumer.stop());
  return consumer;
}
