import type { Semaphore } from '@granary/shared/concurrency/semaphore';
import type { Logger } from '@granary/shared/logger';
import type { Pool } from '@granary/shared/postgres/pool';
import type { App } from '../catalog/app';
import type { CatalogCache } from '../catalog/cache';
import type { ReadAccess } from '../catalog/collection';
import type { AfterPlan } from './after-plan';
import type { BulkThrottle } from './bulk-throttle';
import type { HeadCache } from './head-cache';
import type { NewDocuments } from './new-documents';
import type { WriteMemory } from './write-memory';

/** The state and settings that the commits of all apps share. */
export interface CommitContext {
  pool: Pool;
  log: Logger;
  now: () => Date;
  /** One slot for each transaction that may run at a time. */
  slots: Semaphore;
  /** One slot for each read ahead of a transaction. */
  reads: Semaphore;
  memory: WriteMemory;
  throttle: BulkThrottle;
  heads: HeadCache;
  newDocuments: NewDocuments;
  collections: CatalogCache;
  /** The derived rows that change in the transaction of a batch besides its documents. */
  afterPlan: AfterPlan;
  /** The read access of a collection that a write creates. */
  defaultRead: ReadAccess;
  /** Called after the COMMIT of a transaction, with the numbers of the collections that it changed. Must not throw. */
  afterCommit: (app: App, collectionNumbers: readonly bigint[]) => void;
}
