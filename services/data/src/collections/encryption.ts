import { conflict, ServiceError } from '@granary/shared/errors';
import type { Connection, Queryable } from '@granary/shared/postgres/pool';
import type { CollectionRef } from '../catalog/collection';
import { encryptionUnavailable, newFirstKey, type NewDataKey } from '../encryption-keys/data-keys';
import type { RootKey } from '../encryption-keys/root-key';
import { PAYMENT_REQUIRED } from '../catalog/read-price';
import { encryptField, ENCRYPTION_CONFLICT } from '../tables/encrypted-field';

/** The root key and the look-up that the encryption of fields needs. */
export interface EncryptionSettings {
  /** Undefined where the service has none: then no field can be encrypted. */
  rootKey: RootKey | undefined;
  /** The name of a view that uses a field, if there is one. */
  viewUsing: (tx: Connection, collection: CollectionRef, field: string) => Promise<string | undefined>;
}

/** The data key that the app needs for an encrypted index, made before it is locked. Throws ENCRYPTION_UNAVAILABLE. */
export function keyForIndex(
  db: Queryable,
  appNumber: bigint,
  { rootKey }: Pick<EncryptionSettings, 'rootKey'>,
): Promise<NewDataKey | undefined> {
  if (!rootKey) throw encryptionUnavailable();
  return newFirstKey(db, appNumber, rootKey);
}

/** Encrypts a field for an index that is being created. The app must be locked. Throws ENCRYPTION_CONFLICT. */
export async function encryptForIndex(
  tx: Connection,
  collection: CollectionRef,
  field: string,
  firstKey: NewDataKey | undefined,
  { viewUsing }: Pick<EncryptionSettings, 'viewUsing'>,
  time: Date,
): Promise<void> {
  const view = await viewUsing(tx, collection, field);
  if (view !== undefined) {
    throw conflict(ENCRYPTION_CONFLICT, `The view ${view} uses ${field}, and a view cannot use an encrypted field`, {
      field_name: [`is used by the view ${view}`],
    });
  }
  await encryptField(tx, collection, field, firstKey, time);
}

/** Throws PAYMENT_REQUIRED; what it costs is known to payments. */
export function requirePaidIndex(isPaid: boolean, collection: string, field: string): void {
  if (isPaid) return;
  throw new ServiceError('FAILED_PRECONDITION', PAYMENT_REQUIRED, 'An encrypted index costs something', {
    details: { collection, field_name: field },
  });
}
