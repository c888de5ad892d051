import { sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { keyStringMaxBytes, keyText, keyType } from '../../values/ordered-key';

/** A key as a parameter. */
export const keyValue = (key: Buffer): Sql => sql`${keyText(key)}::bytea`;

/** The first key of a type: it has one byte, and all other keys of the type follow it. */
export const keysFrom = (type: number): Sql => trusted(`'\\x${type.toString(16)}'::bytea`);
export const firstKeyAfterStrings = keysFrom(keyType.string + 1);

/** Whether a key is that of a string with a prefix, whose own key is not truncated. */
export function keysWithPrefix(column: Sql, prefix: Buffer): Sql {
  const end = Buffer.from(prefix);
  end[end.length - 1]! += 1;
  return sql`(${column} >= ${keyValue(prefix)} and ${column} < ${keyValue(end)})`;
}

const keyMaxBytes = trusted(String(1 + keyStringMaxBytes));
/** Whether a key has lost the end of its string, so that it does not tell the place of its row. */
export const isTruncatedKey = (key: Sql): Sql => sql`octet_length(${key}) > ${keyMaxBytes}`;

/** The first key of the values that compare with one whose key begins with `type`, and the first after them. */
export function keysOfType(type: number): [Sql, Sql] {
  if (type >= keyType.negative && type <= keyType.positive) {
    return [keysFrom(keyType.negative), keysFrom(keyType.positive + 1)];
  }
  if (type === keyType.false || type === keyType.true) return [keysFrom(keyType.false), keysFrom(keyType.true + 1)];
  return [keysFrom(type), keysFrom(type + 1)];
}
