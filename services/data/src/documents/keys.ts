import { documentDepthMax, readDocument, type Capture, type ScannedDocument } from '../json/document';
import { JsonReader } from '@granary/shared/json/reader';
import { byteaArrayOf } from '@granary/shared/postgres/wire/binary';
import { joinedUnique, uniqueText } from '../values/canonical';
import type { OrderedKeys } from '../values/ordered-key';
import { searchText } from '../values/search-text';
import type { DocumentRules } from './rules';

/** A field that is added to a document that lacks it. */
export interface Default {
  key: string;
  jsonText: string;
}

/**
 * The value of a document for each unique index; undefined where the collection has none, or the document is deleted.
 */
export type UniqueValues = ReadonlyArray<string | null> | undefined;

/** The words of the field of each full-text index; undefined where the collection has none. */
export type SearchTexts = ReadonlyArray<string | null> | undefined;

/** The keys of a document: those of the fields that indexes are over, in their order, one behind the other. */
export interface DocumentKeys {
  keys: OrderedKeys;
  keysStart: number;
  keysEnd: number;
}

/** The keys of documents as parameters of a statement: for each field a bytea[]. */
export function keyArrays(fields: number, documents: readonly DocumentKeys[]): Buffer[] {
  const next = documents.map(({ keysStart }) => keysStart);
  const sizeBytes = documents.reduce((sum, { keysStart, keysEnd }) => sum + keysEnd - keysStart, 0);
  return Array.from({ length: fields }, () => {
    let index = 0;
    return byteaArrayOf(documents, Math.ceil(sizeBytes / fields), (writer, { keys: { bytes } }) => {
      const start = next[index]!;
      const end = start + 4 + bytes.readInt32BE(start);
      writer.raw(bytes, start, end);
      next[index] = end;
      index += 1;
    });
  });
}

/** Whether a key or a full text reaches into a default that was added. */
export const hasKeyInside = ({ keys, searches }: DocumentRules, defaults: readonly Default[]): boolean =>
  defaults.length > 0 &&
  [...keys, ...searches].some(
    ({ path: [first, ...rest] }) => rest.length > 0 && defaults.some(({ key }) => key === first),
  );

/** Appends the keys of a document that is given its id and defaults; returns its unique values. */
export function appendKeys(
  bytes: Buffer,
  document: ScannedDocument,
  rules: DocumentRules,
  keys: OrderedKeys,
  id: string,
  defaults: readonly Default[],
): UniqueValues {
  const { captures } = document;
  const added = (at: number): string | undefined => addedText(rules.keys[at]!.name, id, defaults);
  for (let index = 0; index < rules.keys.length; index += 1) {
    const { isDate } = rules.keys[index]!;
    const text = added(index);
    if (text === undefined) keys.append(bytes, captures[index], isDate);
    else appendWhole(Buffer.from(text), keys, isDate);
  }
  if (rules.uniques.length === 0 || document.deleted) return undefined;
  return uniquesOf(rules, (index) => {
    const { isDate } = rules.keys[index]!;
    const text = added(index);
    if (text === undefined) return uniqueText(bytes, captures[index], isDate);
    const whole = Buffer.from(text);
    return uniqueText(whole, captureWhole(whole), isDate);
  });
}

/** The full texts of a document that is given its id and defaults. */
export function searchTextsOf(
  bytes: Buffer,
  { captures }: ScannedDocument,
  rules: DocumentRules,
  id: string,
  defaults: readonly Default[],
): SearchTexts {
  if (rules.searches.length === 0) return undefined;
  return rules.searches.map(({ name }, index) => {
    const text = addedText(name, id, defaults);
    if (text === undefined) return searchText(bytes, captures[rules.keys.length + index]);
    const whole = Buffer.from(text);
    return searchText(whole, captureWhole(whole));
  });
}

const appendWhole = (text: Buffer, keys: OrderedKeys, isDate: boolean): void =>
  keys.append(text, captureWhole(text), isDate);

/** The value of each unique index, from those of the fields. */
const uniquesOf = ({ uniques }: DocumentRules, valueOf: (at: number) => string | null): Array<string | null> =>
  uniques.map((places) => joinedUnique(places.map(valueOf)));

/** The JSON text of a field that a document is given. */
function addedText(fieldName: string, id: string, defaults: readonly Default[]): string | undefined {
  if (fieldName === 'id') return JSON.stringify(id);
  return defaults.length === 0 ? undefined : defaults.find(({ key }) => key === fieldName)?.jsonText;
}

/** A JSON text of its own, as a capture of all of it. */
export function captureWhole(text: Buffer): Capture {
  return { type: new JsonReader(text, { maxDepth: 64 }).peekType(), start: 0, end: text.length };
}

/** Appends the keys of a text as it is stored, under any rules: what fills a new index. Returns its other values. */
export function appendStoredKeys(
  bytes: Buffer,
  rules: DocumentRules,
  keys: OrderedKeys,
): { uniques: UniqueValues; searches: SearchTexts } {
  const reader = new JsonReader(bytes, { maxDepth: documentDepthMax });
  const { captures, deleted } = readDocument(reader, rules.watch, { sizeMaxBytes: Infinity });
  rules.keys.forEach(({ isDate }, index) => keys.append(bytes, captures[index], isDate));
  return {
    uniques:
      rules.uniques.length === 0 || deleted
        ? undefined
        : uniquesOf(rules, (at) => uniqueText(bytes, captures[at], rules.keys[at]!.isDate)),
    searches:
      rules.searches.length === 0
        ? undefined
        : rules.searches.map((_, index) => searchText(bytes, captures[rules.keys.length + index])),
  };
}
