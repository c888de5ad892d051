import type { ServiceError } from '@granary/shared/errors';
import { unwrapKeys, type DataKey } from '../encryption-keys/data-keys';

/** The fields of a collection whose values are stored encrypted, with the data keys of its app. */
export interface EncryptedFields {
  names: readonly string[];
  /** The data keys in the order of their versions, or the error that prevented their unwrapping. */
  keys: readonly DataKey[] | ServiceError;
}

/** JSON text, as the catalog selects it. */
interface EncryptedFieldsRow {
  names: string[];
  keys: Array<{ version: number; root_key_id: string; wrapped: string }>;
}

/** Reads the fields with their keys unwrapped. What has no keys can still be looked up, for what needs none of them. */
export async function readEncryptedFields(appNumber: bigint, text: string): Promise<EncryptedFields> {
  const { names, keys } = JSON.parse(text) as EncryptedFieldsRow;
  const wrapped = keys.map(({ version, root_key_id: rootKeyId, wrapped: hex }) => ({
    version,
    rootKeyId,
    bytes: Buffer.from(hex, 'hex'),
  }));
  return { names, keys: await unwrapKeys(appNumber, wrapped).catch((error: ServiceError) => error) };
}

/** The data keys of encrypted fields. Throws ENCRYPTION_UNAVAILABLE. */
export function requireKeys({ keys }: EncryptedFields): readonly DataKey[] {
  if (keys instanceof Error) throw keys;
  return keys;
}
