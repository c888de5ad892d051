import { ServiceError } from '@granary/shared/errors';
import { isStorageFull } from '@granary/shared/health/storage-monitor';
import {
  CommitUnknownError,
  fromPostgres,
  isConnectionError,
  isRetryable,
  sqlState,
} from '@granary/shared/postgres/errors';
import type { CollectionRef } from '../catalog/collection';
import type { AfterPlan } from './after-plan';

/**
 * Whether a transaction may have failed only for the rows that are derived from its collections: then it is tried
 * without them. The error does not say. What another transaction or the database itself has caused is tried again as it
 * is.
 */
export function mayBeOfDerived(
  { afterPlan }: { afterPlan: AfterPlan },
  error: unknown,
  collections: Iterable<CollectionRef>,
): boolean {
  if (sqlState(error) === undefined || error instanceof CommitUnknownError || error instanceof ServiceError)
    return false;
  if (isConnectionError(error) || isRetryable(error) || isStorageFull(fromPostgres(error))) return false;
  return afterPlan.derivedFrom(collections).length > 0;
}
