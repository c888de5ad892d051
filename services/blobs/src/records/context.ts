import type { Signal } from '@granary/shared/concurrency/signal';
import { ServiceError } from '@granary/shared/errors';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { Client } from '@granary/shared/rpc/types';
import type { Logger } from '@granary/shared/logger';
import type { ObjectStore } from '@granary/shared/objects/store';
import type { DatabaseClock } from '@granary/shared/postgres/clock';
import type { Pool } from '@granary/shared/postgres/pool';
import type { StorageMonitor } from '@granary/shared/health/storage-monitor';
import type { Marking } from './stored-uploads';
import type { Removal } from './removal';

/** What every part of the service works with. */
export interface BlobsContext {
  pool: Pool;
  clock: DatabaseClock;
  log: Logger;
  store: ObjectStore;
  /** The room of the store. */
  objectStorage: StorageMonitor;
  data: Client<DataDefinition>;
  /** Notified after events were committed. */
  appended: Signal;
  /** Blobs whose commit is under way in this process; nobody else decides about them meanwhile. */
  committing: Set<string>;
  markStored: Marking;
  removeBytes: Removal;
  pendingGraceMs: number;
  /** Of the transfer at hand, if it is traced. */
  trace?: string;
}

/** Long enough for several tries of a commit while data restarts. */
export const dataTimeoutMs = 20_000;

const unknownOutcomes = new Set(['UNAVAILABLE', 'DEADLINE_EXCEEDED', 'CANCELLED', 'INTERNAL']);

/** Whether a call that changes something may have changed it although it failed. */
export function isOutcomeUnknown(error: unknown): boolean {
  return !(error instanceof ServiceError) || unknownOutcomes.has(error.code);
}
