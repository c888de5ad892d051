import type { JsonValue } from '@granary/shared/json/value';
import type { DocumentCipher, EncryptedField } from '../../encryption/document-cipher';
import { canonicalText } from '../../values/canonical';
import { or, type Condition, type FieldCondition, type Path } from './condition';
import { invalidQuery } from './query-error';

/** How a path and an encrypted field lie to one another. */
type Relation = 'same' | 'inside' | 'around';

/** The encrypted field that a path names, leads into or leads to. */
export function encryptedAt(
  cipher: DocumentCipher,
  path: Path,
): { field: EncryptedField; relation: Relation } | undefined {
  for (const field of cipher.fields) {
    const shared = Math.min(path.length, field.path.length);
    if (!path.slice(0, shared).every((step, index) => step === field.path[index])) continue;
    if (path.length === field.path.length) return { field, relation: 'same' };
    return { field, relation: path.length > shared ? 'inside' : 'around' };
  }
  return undefined;
}

/** Whether a condition looks at encrypted fields. */
export function looksAtEncrypted(cipher: DocumentCipher, condition: Condition): boolean {
  if ('conditions' in condition) return condition.conditions.some((one) => looksAtEncrypted(cipher, one));
  return encryptedAt(cipher, condition.path) !== undefined;
}

/** Returns the replacement for a condition that an encrypted field does not support, or throws; see `withTerms`. */
export type Unsupported = (condition: FieldCondition, field: EncryptedField) => Condition;

/** Throws INVALID_QUERY. */
export const refuseUnsupported: Unsupported = ({ path, kind }, { name }) => {
  const how = kind === 'reference' ? 'so it cannot be joined by' : 'so it can be compared for equality only';
  throw invalidQuery(
    path.join('.'),
    name === path.join('.') ? `is encrypted, ${how}` : `holds the encrypted field ${name}`,
  );
};

/**
 * The condition as it is read from stored documents: the values of encrypted fields are compared by their blind
 * indexes. Whether such a field is there, or null, is stored as it is; what else would need the value is given to
 * `unsupported`.
 */
export function withTerms(cipher: DocumentCipher, condition: Condition, unsupported: Unsupported): Condition {
  if ('conditions' in condition) {
    const { kind, conditions } = condition;
    return { kind, conditions: conditions.map((one) => withTerms(cipher, one, unsupported)) };
  }
  const match = encryptedAt(cipher, condition.path);
  // A value is no object, so nothing is inside of it.
  if (!match || match.relation === 'inside') return condition;
  const { field, relation } = match;
  if (relation === 'around') return isOfPresence(condition) ? condition : unsupported(condition, field);
  const path = field.termName.split('.');
  switch (condition.kind) {
    case 'is':
      return { kind: 'is', path, value: termOf(field, condition.value) };
    case 'in':
      return { kind: 'in', path, values: condition.values.map((value) => termOf(field, value)) };
    case 'empty':
      return { kind: 'empty', path };
    default:
      return isOfPresence(condition) ? condition : unsupported(condition, field);
  }
}

const isOfPresence = ({ kind }: FieldCondition): boolean => kind === 'empty' || kind === 'exists';

const termOf = ({ cipher }: EncryptedField, value: JsonValue): string => cipher.term(canonicalText(value, false));

/** Holds for no record. */
export const never: Condition = or();

/** Throws INVALID_QUERY for a path that is to be sorted by, or joined to, and leads to an encrypted field. */
export function assertPlain(cipher: DocumentCipher | undefined, path: Path, location: string): void {
  const match = cipher && encryptedAt(cipher, path);
  if (match)
    throw invalidQuery(
      location,
      `names the encrypted field ${match.field.name}, which can be compared for equality only`,
    );
}
