import {
  readDocument,
  spliceText,
  textAt,
  type Capture,
  type Replacement,
  type ScannedDocument,
} from '../json/document';
import { JsonReader } from '@granary/shared/json/reader';
import type { EncryptedField } from '../encryption/document-cipher';
import { canonicalText, valueAt } from '../values/canonical';
import { captureWhole, type Default } from './keys';
import type { DocumentRules } from './rules';

const scalarTypes: ReadonlySet<Capture['type']> = new Set(['string', 'number', 'boolean']);

/** The result of encrypting the fields of a document. */
export interface EncryptedValues {
  /** Its values in the text that was read, and what is stored instead. */
  replacements: readonly Replacement[];
  /** The blind indexes of the values, as members that the stored text has. */
  terms: readonly Default[];
  /**
   * The values that were stored before and come again, decrypted, because a merge patch leaves them as they are. Values
   * of an earlier key are encrypted by the latest one.
   */
  decrypted: ReadonlyMap<string, Buffer>;
  /** Bytes by which the text that was read is longer than the document is without encryption. */
  addedBytes: number;
}

export const nothingEncrypted: EncryptedValues = { replacements: [], terms: [], decrypted: new Map(), addedBytes: 0 };

/** Refuses the value of a field. */
type Refuse = (fieldName: string, message: string) => void;

/**
 * Encrypts the values of a document that was read under `rules`: strings, numbers and booleans; null is stored as it
 * is. Any other value is refused by `refuse`.
 */
export function encryptValues(
  bytes: Buffer,
  { captures }: ScannedDocument,
  { encrypted, keys, searches, fields }: DocumentRules,
  id: string,
  refuse: Refuse,
): EncryptedValues {
  const first = keys.length + searches.length + fields.length;
  const replacements: Replacement[] = [];
  const terms: Default[] = [];
  const decrypted = new Map<string, Buffer>();
  let addedBytes = 0;
  for (const [index, field] of encrypted.entries()) {
    const capture = captures[first + index];
    if (capture === undefined || capture.type === 'null') continue;
    const { name, cipher } = field;
    const stored = capture.type === 'object' ? textAt(bytes, capture) : '';
    const plaintext = stored === '' ? undefined : cipher.decrypt(id, stored);
    const { start, end } = capture;
    if (plaintext) {
      decrypted.set(name, plaintext);
      addedBytes += end - start - plaintext.length;
      if (cipher.isCurrent(stored)) continue;
      replacements.push({ start, end, text: cipher.encrypt(id, plaintext, canonicalOf(plaintext)) });
    } else if (!scalarTypes.has(capture.type)) {
      refuse(name, 'must be a string, a number, a boolean or null, for the field is encrypted');
    } else {
      const canonical = canonicalText(valueAt(bytes, capture), false);
      replacements.push({ start, end, text: cipher.encrypt(id, bytes.subarray(start, end), canonical) });
      terms.push(termOf(field, cipher.term(canonical)));
    }
  }
  return { replacements, terms, decrypted, addedBytes };
}

/** Defaults, which are at the top level, with the encrypted fields that are in them encrypted. */
export function encryptDefaults(
  defaults: readonly Default[],
  rules: DocumentRules,
  id: string,
  refuse: Refuse,
): Default[] {
  return defaults.map(({ key, jsonText }) => {
    if (!rules.encrypted.some(({ path }) => path[0] === key)) return { key, jsonText };
    const before = `{${JSON.stringify(key)}:`;
    const text = Buffer.from(`${before}${jsonText}}`);
    const document = readDocument(new JsonReader(text, { maxDepth: defaultDepthMax }), rules.watch);
    const { replacements } = encryptValues(text, document, rules, id, refuse);
    const stored = spliceText(text, document, { defaults: [], replacements }).toString();
    return { key, jsonText: stored.slice(before.length, -1) };
  });
}

/** Levels of the default of a field, with the object around it. */
const defaultDepthMax = 66;

const canonicalOf = (text: Buffer): string => canonicalText(valueAt(text, captureWhole(text)), false);

const termOf = ({ termName: key }: EncryptedField, term: string): Default => ({ key, jsonText: JSON.stringify(term) });
