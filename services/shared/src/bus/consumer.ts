import type { OutboxDefinition } from '../gen/granary/events/v1/Outbox';
import type { Check } from '../health/check';
import type { Logger } from '../logger';
import type { Pool } from '../postgres/pool';
import type { Client } from '../rpc/types';
import type { EventVerifier } from '../trust/event-signature';
import type { Bus } from './bus';
import type { Handle } from './inbox';

export interface ConsumerOptions {
  pool: Pool;
  log: Logger;
  /** The transport of events; undefined: by reading the outbox. */
  bus?: Bus;
  /** The key of its cursor, inbox and dead letters; a consumer reads one source. */
  name: string;
  /** The service whose events it reads. */
  from: string;
  /** The outbox of that service, in this process or elsewhere. */
  source: Client<OutboxDefinition>;
  /** Checks that its events are those of that service; see `Trust.verifier`. */
  verifier: EventVerifier;
  topics: string[];
  handle: Handle;
  /** Bounds of the interval between two polls of the outbox while there are no events. */
  pollMs?: { min: number; max: number };
  /** How often an event that fails for an unknown reason is tried before it is dead-lettered. */
  attempts?: number;
  /** Overrides the usual times, for tests. */
  kafkaTimes?: Partial<KafkaTimes>;
}

export interface KafkaTimes {
  /** Age at which an event that Kafka has not delivered is read from the outbox. */
  sweepAfterMs: number;
  /** A member without a heartbeat for this long loses its partitions. */
  sessionTimeoutMs: number;
  /** A member that makes no progress for this long, although there are messages, is replaced. */
  stuckMs: number;
}

export interface Consumer {
  /** Resolves when what is under way has ended. */
  stop(): Promise<void>;
  /** The health check: degraded when the consumer lags, cannot read, or has dead letters. */
  readonly lag: Check;
  /** Polls at once. */
  wake(): void;
  /** Rejects when it makes no progress and a new process might; otherwise never settles. */
  readonly failed: Promise<never>;
}
