import type { Signal } from '@granary/shared/concurrency/signal';
import { ServiceError } from '@granary/shared/errors';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { Client } from '@granary/shared/rpc/types';
import type { Logger } from '@granary/shared/logger';
import type { ObjectStore } from '../stores/store';
import type { DatabaseClock } from '@granary/shared/postgres/clock';
import type { Pool } from '@granary/shared/postgres/pool';
import type { StorageMonitor } from '@granary/shared/health/storage-monitor';
import type { MarkStored } from './stored-uploads';
import type { Removal } from './removal';

/** The state and the clients that the parts of the service share. */
export interface BlobsContext {
  pool: Pool;
  clock: DatabaseClock;
  log: Logger;
  store: ObjectStore;
  /** Free space of the store. */
  objectStorage: StorageMonitor;
  data: Client<DataDefinition>;
  /** Notified after events were committed. */
  appended: Signal;
  /** Rows of blobs whose commit is in flight in this process; reconciliation skips them. */
  committing: Set<string>;
  markStored: MarkStored;
  removeBytes: Removal;
  pendingGraceMs: number;
  /** The trace of the current transfer, if it is traced. */
  trace?: string;
}

/** Long enough for several attempts to commit while `data` restarts. */
export const dataTimeoutMs = 20_000;

const unknownOutcomes = new Set(['UNAVAILABLE', 'DEADLINE_EXCEEDED', 'CANCELLED', 'INTERNAL']);

/** Whether a call that changes something may have changed it although it failed. */
export function isOutcomeUnknown(error: unknown): boolean {
  return !(error instanceof ServiceError) || unknownOutcomes.has(error.code);
}
