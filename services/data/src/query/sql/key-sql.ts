import { sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { isTruncated, keyType } from '../../values/ordered-key';

/** A key as a parameter: bytea in its text form. */
export const keyText = (key: Buffer): string => `\\x${key.toString('hex')}`;
export const keyValue = (key: Buffer): Sql => sql`${keyText(key)}::bytea`;

/** A key of one byte, from which on those of a type are. */
export const keysFrom = (type: number): Sql => trusted(`'\\x${type.toString(16)}'::bytea`);
export const firstKeyAfterStrings = keysFrom(keyType.string + 1);

/** Whether only one value has this key, so that the record need not be read. */
export const isExact = (key: Buffer): boolean =>
  key[0] !== keyType.array && key[0] !== keyType.object && !isTruncated(key);

/** The first key of the values that compare with one whose key begins with `type`, and the first after them. */
export function keysOfType(type: number): [Sql, Sql] {
  if (type >= keyType.negative && type <= keyType.positive) {
    return [keysFrom(keyType.negative), keysFrom(keyType.positive + 1)];
  }
  if (type === keyType.false || type === keyType.true) return [keysFrom(keyType.false), keysFrom(keyType.true + 1)];
  return [keysFrom(type), keysFrom(type + 1)];
}
