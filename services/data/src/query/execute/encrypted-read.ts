import type { Condition } from '../language/condition';
import { assertPlain, looksAtEncrypted, refuseUnsupported, withTerms } from '../language/encrypted-conditions';
import { needsKey } from '../language/paging';
import type { SortTerm } from '../language/sort';
import { assertOperands } from '../plan/operands';
import type { Relation } from '../plan/relation';

/** A conversion of the stored text of a record, applied before anything of the record is shown. */
export type RecordText = (stored: Buffer) => Buffer;

/**
 * How a reader gets the records of a relation: with their encrypted fields decrypted where it may read what is private,
 * else without them. Undefined where they are shown as they are stored.
 */
export function recordText({ cipher }: Pick<Relation, 'cipher'>, mayReadPrivate: boolean): RecordText | undefined {
  if (!cipher) return undefined;
  return mayReadPrivate ? (stored) => cipher.decrypt(stored) : (stored) => cipher.omit(stored);
}

/**
 * The filter as it is read from stored documents. Throws INVALID_QUERY where it compares a field with what its declared
 * type has no values of, or asks for more than the equality of an encrypted field; UNAUTHENTICATED where the reader may
 * not ask for that.
 */
export function storedFilter(
  { cipher, declared }: Pick<Relation, 'cipher' | 'declared'>,
  find: Condition,
  mayReadPrivate: boolean,
): Condition {
  assertOperands({ declared }, find);
  if (!cipher || !looksAtEncrypted(cipher, find)) return find;
  if (!mayReadPrivate) throw needsKey('encrypted field');
  return withTerms(cipher, find, refuseUnsupported);
}

/**
 * Throws INVALID_QUERY for conditions of the join at `location` that refer to an encrypted field of the record one
 * level up.
 */
export function assertPlainReferences({ cipher }: Pick<Relation, 'cipher'>, find: Condition, location: string): void {
  if (!cipher) return;
  if ('conditions' in find) for (const one of find.conditions) assertPlainReferences({ cipher }, one, location);
  else if (find.kind === 'reference') assertPlain(cipher, find.to, location);
}

/** Throws INVALID_QUERY for a sort by an encrypted field. */
export function assertSortable({ cipher }: Pick<Relation, 'cipher'>, sort: readonly SortTerm[]): void {
  for (const { path } of sort) assertPlain(cipher, path, 'sort');
}
