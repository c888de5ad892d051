import { conflict } from '@granary/shared/errors';
import type { JobResponse } from '@granary/shared/gen/granary/data/v1/JobResponse';
import type { RotateDataKeyRequest } from '@granary/shared/gen/granary/data/v1/RotateDataKeyRequest';
import { databaseTime } from '@granary/shared/postgres/clock';
import { row } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { findApp } from '../catalog/app';
import { bumpCatalogRevision, withAppLockOnce } from '../catalog/app-lock';
import { addDataKey, encryptionUnavailable, newLaterKey } from '../encryption-keys/data-keys';
import type { RootKey } from '../encryption-keys/root-key';
import { enqueueJob } from '../jobs/queue';
import { ENCRYPTION_CONFLICT } from '../tables/encrypted-field';
import type { PoolContext } from '../postgres/databases';

/**
 * Gives an app another data key, which encrypts from now on, and queues the job that writes present documents anew.
 * While that waits, a second rotation makes no other key. Throws ENCRYPTION_CONFLICT where nothing is encrypted,
 * ENCRYPTION_UNAVAILABLE.
 */
export async function rotateDataKey(
  { pool, rootKey }: PoolContext & { rootKey: RootKey | undefined },
  request: RotateDataKeyRequest,
): Promise<JobResponse> {
  if (!rootKey) throw encryptionUnavailable();
  const { number } = await findApp(pool, request.appId);
  const laterKey = await newLaterKey(pool, number, rootKey);
  return withAppLockOnce<JobResponse>(pool, request, async (tx, app) => {
    const encrypted = await row(tx, sql`select from encrypted_field where app_number = ${app.number} limit 1`);
    if (!encrypted) throw conflict(ENCRYPTION_CONFLICT, 'The app has no encrypted field');
    const { ticketId } = request;
    const queued = await enqueueJob(tx, app, 'encryption.rotate', { app_id: app.appId }, { ticketId, subject: 'keys' });
    if (queued === ticketId) {
      await addDataKey(tx, app.number, laterKey, await databaseTime(tx));
      await bumpCatalogRevision(tx, app.number);
    }
    return { name: app.appId, ticketId: queued };
  });
}
