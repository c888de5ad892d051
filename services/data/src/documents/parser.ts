import { invalid, forbidden, type FieldMessages } from '@granary/shared/errors';
import { newDocumentId } from '@granary/shared/ids';
import {
  assertDocumentSize,
  idRule,
  isDocumentId,
  readDocument,
  spliceText,
  type Capture,
  type ScannedDocument,
} from '../json/document';
import { requestError, translateRequestErrors } from '../json/request-errors';
import type { MergePatch } from '../json/merge-patch';
import { JsonReader } from '@granary/shared/json/reader';
import { runToCompletion, runSliced, type Task } from '@granary/shared/concurrency/time-slicing';
import { dotSegmentRule, isDotSegment, nameRule } from '@granary/shared/names';
import { sha256Text } from '../values/sha256';
import { isName } from '../catalog/names';
import { fieldProblems } from '../catalog/schema';
import { OrderedKeys } from '../values/ordered-key';
import {
  appendKeys,
  appendStoredKeys,
  captureWhole,
  hasKeyInside,
  searchTextsOf,
  type Default,
  type DocumentKeys,
  type SearchTexts,
  type UniqueValues,
} from './keys';
import { encryptDefaults, encryptValues, nothingEncrypted } from './encrypted-values';
import type { DocumentRules } from './rules';
import { joinPath, Violations, type Place } from './violations';

/** Documents of one call, at most. Larger sets come in several calls. */
export const documentsPerCallMax = 10_000;
/** Bytes of all documents of a call with what was added to them, at most. */
const preparedMaxBytes = 32 * 1024 * 1024;
/** Levels of a body around a document: the body's own object and the array. */
const bodyDepth = 66;

/**
 * One document, ready to be written. While a bulk waits for its turn V8 copies whatever each of its documents consists
 * of, so that is few and small objects: no buffer of its own where its text can stand in the body, for buffers are the
 * largest.
 */
export interface PreparedDocument extends DocumentKeys {
  id: string;
  /** Whether this service made the id for it, so that no document has it yet. */
  hasNewId: boolean;
  /** Its own text, with id and defaults, stands from `start` to `end` of this; mostly in the request's own body. */
  text: Buffer;
  start: number;
  end: number;
  /** The SHA-256 of its text, a byte in each character. */
  sha256: string;
  deleted: boolean;
  uniques: UniqueValues;
  searches: SearchTexts;
}

/** Skips the array that the reader stands at; yields after each element. */
export function* skippingSteps(reader: JsonReader): Task<void> {
  for (reader.enterArray(); reader.nextElement(); yield) reader.skipValue();
}

interface BodyOptions {
  /** Whether data may be one object too. */
  single?: true;
  /** A reader of the same body that has read its root, see `readStoreRoot`. */
  rest?: JsonReader | undefined;
}

/**
 * Reads and validates a whole body `{"root"?: …, "data": [object, …]}` and every document in it, in one pass over its
 * bytes. Throws a ServiceError that names each place that is wrong.
 */
export const prepareBody = (body: Buffer, rules: DocumentRules, options?: BodyOptions): PreparedDocument[] =>
  readAtOnce(bodySteps(body, rules, options));

/** Prepares a large body as prepareBody() does, while others have their turns. */
export const prepareLargeBody = (
  body: Buffer,
  rules: DocumentRules,
  options?: BodyOptions,
): Promise<PreparedDocument[]> => readInSlices(bodySteps(body, rules, options));

/** Yields after each document. */
function* bodySteps(body: Buffer, rules: DocumentRules, options: BodyOptions = {}): Task<PreparedDocument[]> {
  const reader = options.rest ?? openObject(body);
  const problems: FieldMessages = {};
  let prepared: PreparedDocument[] | undefined;
  while (reader.nextMember()) {
    const key = reader.key();
    const type = reader.peekType();
    if (key === 'data' && (type === 'array' || (type === 'object' && options.single))) {
      prepared = type === 'array' ? yield* documentSteps(reader, rules) : [prepareSingle(reader, rules)];
      continue;
    }
    if (key === 'data') problems['data'] = ['must be an array of objects'];
    else if (key !== 'root') problems[key] = ['is not a known field'];
    if (type === 'array') yield* skippingSteps(reader);
    else reader.skipValue();
  }
  reader.end();
  if (!prepared && !problems['data']) problems['data'] = ['is required and missing'];
  if (prepared && Object.keys(problems).length === 0) return prepared;
  throw invalid('The request is not valid', problems);
}

/** A reader in the object that a body must be. Throws VALIDATION_FAILED, MALFORMED_JSON. */
export function openObject(body: Buffer, maxDepth = bodyDepth): JsonReader {
  const reader = new JsonReader(body, { maxDepth });
  if (reader.peekType() !== 'object') throw invalid('The body must be a JSON object', { body: ['must be an object'] });
  reader.enterObject();
  return reader;
}

/** The collection of a root `app::collection`. Throws VALIDATION_FAILED, and FORBIDDEN for another app. */
export function collectionOf(root: string, appId: string): string {
  const [app, collection, ...rest] = root.split('::');
  if (rest.length > 0 || collection === undefined) {
    throw invalid('The root is not valid', { root: ['must have the form app_id::collection'] });
  }
  if (!isName(collection)) throw invalid('The root is not valid', { root: [`the collection ${nameRule}`] });
  if (app !== appId) throw forbidden('The key belongs to another app');
  return collection;
}

/** The state that the documents of one body share while they are read. */
interface Preparing {
  rules: DocumentRules;
  keys: OrderedKeys;
  violations: Violations;
  patch?: MergePatch | undefined;
}

/** A document has some bytes of keys for a hundred of its own; more make the buffer grow. */
const newKeys = (bytes: Buffer, { keys }: DocumentRules): OrderedKeys =>
  new OrderedKeys(keys.length === 0 ? 0 : 128 + 16 * keys.length + (bytes.length >>> 4));

const preparing = (bytes: Buffer, rules: DocumentRules, keys = newKeys(bytes, rules)): Preparing => ({
  rules,
  keys,
  violations: new Violations(),
});

function prepareSingle(reader: JsonReader, rules: DocumentRules): PreparedDocument {
  const shared = preparing(reader.bytes, rules);
  const document = readDocument(reader, rules.watch);
  requireAddressable(document, 'data');
  const prepared = prepareDocument(reader.bytes, document, shared, 'data');
  shared.violations.throwAny();
  return prepared;
}

/**
 * Throws VALIDATION_FAILED for an id that cannot be the last segment of an address; `path` is where the document
 * stands.
 */
export function requireAddressable({ id }: { id: string | null }, path: string): void {
  if (id === null || !isDotSegment(id)) return;
  throw invalid('The id is not valid', { [joinPath(path, 'id')]: [dotSegmentRule] });
}

/** Reads the array of documents that the reader stands at. */
function* documentSteps(reader: JsonReader, rules: DocumentRules): Task<PreparedDocument[]> {
  const prepared: PreparedDocument[] = [];
  const shared = preparing(reader.bytes, rules);
  let bytes = 0;
  reader.enterArray();
  while (reader.nextElement()) {
    if (prepared.length >= documentsPerCallMax) {
      const message = `may have at most ${documentsPerCallMax} elements`;
      throw invalid('Too many documents in one call', { data: [message] }, 'LIMIT_EXCEEDED');
    }
    const document = readDocument(reader, rules.watch);
    requireAddressable(document, `data[${prepared.length}]`);
    const next = prepareDocument(reader.bytes, document, shared, prepared.length);
    prepared.push(next);
    bytes += next.end - next.start;
    if (bytes > preparedMaxBytes) {
      const message = `may have at most ${preparedMaxBytes} bytes together with the defaults of the schema`;
      throw invalid('Too much data in one call', { data: [message] }, 'LIMIT_EXCEEDED');
    }
    yield;
  }
  shared.violations.throwAny();
  return prepared;
}

/** Facts about one document besides its text. */
export interface DocumentSource {
  /** The path of the document in the request; by default the document is the request. */
  path?: string;
  /** The buffer to which its keys are appended. */
  keys?: OrderedKeys | undefined;
  /**
   * The patch that made it of a stored document: what it does not name is not judged, unless it is required and
   * missing.
   */
  patch?: MergePatch | undefined;
}

/**
 * Prepares the text of one document. Where it has its id from elsewhere, its own must be the same, or missing. Throws
 * VALIDATION_FAILED, MALFORMED_JSON, SCHEMA_VIOLATION, DOCUMENT_TOO_LARGE.
 */
export function prepareDocumentOf(
  id: string | undefined,
  bytes: Buffer,
  rules: DocumentRules,
  { path = '', keys, patch }: DocumentSource = {},
): PreparedDocument {
  return translateRequestErrors(() => {
    const reader = new JsonReader(bytes, { maxDepth: bodyDepth });
    const shared = { ...preparing(bytes, rules, keys), patch };
    // The stored values of encrypted fields are longer than the fields, so their documents are measured afterwards.
    const document = readDocument(reader, rules.watch, rules.encrypted.length === 0 ? {} : { sizeMaxBytes: Infinity });
    reader.end();
    if (id === undefined) requireAddressable(document, path);
    else if (!isDocumentId(id)) throw invalid('The id is not valid', { [joinPath(path, 'id')]: [idRule] });
    else if (document.id !== null && document.id !== id) {
      throw invalid('The id of a document cannot change', {
        [joinPath(path, 'id')]: ['is another than that of the document'],
      });
    }
    const prepared = prepareDocument(bytes, document, shared, path, id);
    shared.violations.throwAny();
    return prepared;
  }, path);
}

function prepareDocument(
  bytes: Buffer,
  document: ScannedDocument,
  shared: Preparing,
  place: Place,
  ownId?: string,
): PreparedDocument {
  const { rules, keys, violations } = shared;
  const givenId = document.id ?? ownId;
  const id = givenId ?? newDocumentId();
  const refuse = (name: string, problem: string) => violations.add(place, name, problem);
  const { replacements, terms, decrypted, addedBytes } =
    rules.encrypted.length === 0 ? nothingEncrypted : encryptValues(bytes, document, rules, id, refuse);
  assertDocumentSize(document, addedBytes);
  // A soft delete needs no more than an id.
  const plain = document.deleted ? noDefaults : checkFields(bytes, document, shared, place, decrypted);
  const defaults = rules.encrypted.length === 0 ? plain : encryptDefaults(plain, rules, id, refuse);
  const isWhole = document.idType === 'string' && defaults.length + replacements.length === 0;
  const { start, end } = document;
  const body = isWhole ? bytes.subarray(start, end) : spliceText(bytes, document, { id, defaults, replacements });
  const keysStart = keys.length;
  const added = terms.length === 0 ? defaults : [...defaults, ...terms];
  const { uniques, searches } = hasKeyInside(rules, defaults)
    ? appendStoredKeys(body, rules, keys)
    : {
        uniques: appendKeys(bytes, document, rules, keys, id, added),
        searches: searchTextsOf(bytes, document, rules, id, added),
      };
  return {
    id,
    hasNewId: givenId === undefined,
    text: isWhole ? bytes : body,
    start: isWhole ? start : 0,
    end: isWhole ? end : body.length,
    sha256: sha256Text(body),
    deleted: document.deleted,
    keys,
    keysStart,
    keysEnd: keys.length,
    uniques,
    searches,
  };
}

const noDefaults: readonly Default[] = [];

/** Adds what is wrong with the fields of a document to the violations; gives the defaults that it lacks. */
function checkFields(
  bytes: Buffer,
  document: ScannedDocument,
  { rules, violations, patch }: Preparing,
  place: Place,
  decrypted: ReadonlyMap<string, Buffer>,
): readonly Default[] {
  if (rules.fields.length === 0) return noDefaults;
  const defaults: Default[] = [];
  const firstField = rules.keys.length + rules.searches.length;
  for (const [index, { name, rule }] of rules.fields.entries()) {
    const capture = document.captures[firstField + index];
    // The id that is missing will be made, and a string.
    if (name === 'id' && document.id === null) continue;
    const plaintext = decrypted.get(name);
    const problems = plaintext
      ? fieldProblems(rule, plaintext, captureWhole(plaintext))
      : fieldProblems(rule, bytes, capture);
    if (problems.length > 0 && isJudged(name, capture, patch)) {
      for (const problem of problems) violations.add(place, name, problem);
    }
    if (capture === undefined && rule.defaultText !== undefined)
      defaults.push({ key: name, jsonText: rule.defaultText });
  }
  return defaults;
}

/** Whether a field is judged: of a patched document only what is missing, and what the patch names. */
const isJudged = (name: string, capture: Capture | undefined, patch: MergePatch | undefined): boolean =>
  patch === undefined || capture === undefined || capture.type === 'null' || patch.names(name.split('.'));

export const readAtOnce = <T>(steps: Task<T>): T => translateRequestErrors(() => runToCompletion(steps));

export async function readInSlices<T>(steps: Task<T>, options?: { priority: true }): Promise<T> {
  try {
    return await runSliced(steps, options);
  } catch (error) {
    throw requestError(error);
  }
}
