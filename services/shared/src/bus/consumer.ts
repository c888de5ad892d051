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
  /** How the events come; undefined: by reading the outbox. */
  bus?: Bus;
  /** Its place, its inbox and what it put aside are kept under this name; one consumer reads one source. */
  name: string;
  /** The service whose events it reads. */
  from: string;
  /** The outbox of that service, in this process or elsewhere. */
  source: Client<OutboxDefinition>;
  /** Checks that its events are those of that service; see `Trust.verifier`. */
  verifier: EventVerifier;
  topics: string[];
  handle: Handle;
  /** Bounds of the wait between two looks at the outbox when nothing comes. */
  pollMs?: { min: number; max: number };
  /** How often an event that fails for no known reason is tried before it is put aside. */
  attempts?: number;
  /** What tests shorten. */
  kafkaTimes?: Partial<KafkaTimes>;
}

export interface KafkaTimes {
  /** Age at which an event that Kafka has not brought is taken from the outbox. */
  sweepAfterMs: number;
  /** A member that says nothing for this long loses its partitions. */
  sessionTimeoutMs: number;
  /** A member that gets nowhere for this long, while there is something to do, is replaced. */
  stuckMs: number;
}

export interface Consumer {
  /** Lets what is under way end. */
  stop(): Promise<void>;
  /** For health: degraded when it is behind, cannot read, or has put events aside. */
  lag: Check;
  /** Looks at once. */
  wake(): void;
  /** Rejects when it gets nowhere and a new process might; otherwise never settles. */
  failed: Promise<never>;
}
