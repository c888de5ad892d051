import { invalid, type FieldMessages } from '@granary/shared/errors';
import { newDocumentId } from '@granary/shared/ids';
import { readDocument, compileWatch } from '../json/document';
import { MergePatch } from '../json/merge-patch';
import type { JsonReader } from '@granary/shared/json/reader';
import { nameRule } from '@granary/shared/names';
import { isName } from '../catalog/names';
import { documentKey } from '../commit/write';
import { openObject, requireAddressable } from '../documents/parser';
import { translateRequestErrors } from '../json/request-errors';
import type { Condition } from '../query/language/condition';
import { parseQuery } from '../query/language/filter';
import { invalidQuery } from '../query/language/query-error';
import { readJsonText } from '../query/language/paging';
import type { DocumentChange } from './document-change';

export const operationsMax = 1_000;
/** Levels around the documents of a batch: its own object, the array, the operation. */
const bodyDepth = 67;

const kinds = { create: 'create', update: 'merge', delete: 'delete' } as const;
const watchNothing = compileWatch([]);

/** The name that a batch has for the kind of a change. */
export const operationOf = ({ kind }: DocumentChange): string => (kind === 'merge' ? 'update' : kind);

export interface Batch {
  changes: readonly DocumentChange[];
  atomic: boolean;
}

/** Whether two changes are of one document. */
export function hasRepeated(changes: readonly DocumentChange[]): boolean {
  return new Set(changes.map(({ collection, id }) => documentKey(collection, id))).size < changes.length;
}

/**
 * The body of a batch, `{"operations": [{operation, collection, data, conditions?}], "atomic"?}`. Operations on one
 * document twice are refused in an atomic batch. Throws MALFORMED_JSON, VALIDATION_FAILED, LIMIT_EXCEEDED,
 * INVALID_QUERY.
 */
export function parseBatch(body: Buffer): Batch {
  return translateRequestErrors(() => {
    const reader = openObject(body, bodyDepth);
    const batch = readBatch(reader);
    reader.end();
    if (batch.atomic) refuseRepeated(batch.changes);
    return batch;
  });
}

/** Reads the members of the body, whose object is open. */
function readBatch(reader: JsonReader): Batch {
  let changes: DocumentChange[] | undefined;
  let atomic = false;
  while (reader.nextMember()) {
    const key = reader.key();
    if (key === 'operations') changes = readOperations(reader);
    else if (key !== 'atomic') throw wrong(key, 'is not a known field');
    else if (reader.peekType() === 'boolean') atomic = reader.readBoolean();
    else throw wrong('atomic', 'must be true or false');
  }
  if (!changes) throw wrong('operations', 'is required and missing');
  if (changes.length === 0) throw wrong('operations', 'must not be empty');
  return { changes, atomic };
}

function readOperations(reader: JsonReader): DocumentChange[] {
  if (reader.peekType() !== 'array') throw wrong('operations', 'must be an array');
  const changes: DocumentChange[] = [];
  reader.enterArray();
  while (reader.nextElement()) {
    if (changes.length >= operationsMax) {
      const message = `may have at most ${operationsMax} elements`;
      throw invalid('Too many operations in one batch', { operations: [message] }, 'LIMIT_EXCEEDED');
    }
    changes.push(readOperation(reader, `operations[${changes.length}]`));
  }
  return changes;
}

/** The members of an operation as they stand in the body. */
interface OperationMembers {
  operation?: string;
  collection?: string;
  data?: { id: string | null; text: Buffer; patch: MergePatch };
  conditions?: Condition;
}

function readOperation(reader: JsonReader, path: string): DocumentChange {
  if (reader.peekType() !== 'object') throw wrong(path, 'must be an object');
  const members: OperationMembers = {};
  reader.enterObject();
  while (reader.nextMember()) readMember(reader, members, path);
  return toChange(members, path);
}

function readMember(reader: JsonReader, members: OperationMembers, path: string): void {
  const key = reader.key();
  const memberPath = `${path}.${key}`;
  switch (key) {
    case 'operation':
    case 'collection':
      if (reader.peekType() !== 'string') throw wrong(memberPath, 'must be a string');
      members[key] = reader.readString();
      break;
    case 'data': {
      if (reader.peekType() !== 'object') throw wrong(memberPath, 'must be an object');
      // The operation may follow: an update needs the members, and need not read the text again.
      const patch = new MergePatch(reader.bytes);
      const { start, end, id } = readDocument(reader, watchNothing, { members: patch });
      members.data = { id, text: reader.bytes.subarray(start, end), patch };
      break;
    }
    case 'conditions': {
      const start = reader.skipValue();
      members.conditions = parseConditions(reader.bytes.subarray(start, reader.position), memberPath);
      break;
    }
    default:
      throw wrong(memberPath, 'is not a known field');
  }
}

/** Conditions take no joins: those add members to what is read and filter nothing. */
function parseConditions(text: Buffer, memberPath: string): Condition {
  const conditions = readJsonText(text, memberPath);
  // A guard that holds for every document is one whose value was left undefined.
  if (!(conditions instanceof Map) || conditions.size === 0) {
    throw invalidQuery(memberPath, 'must be an object with a condition; leave it out where there is none');
  }
  const { find, joins } = parseQuery(conditions, memberPath);
  const [join] = joins;
  if (join) throw invalidQuery(join.at, 'is a join, which adds members and filters nothing: conditions take none');
  return find;
}

function toChange({ operation, collection, data, conditions }: OperationMembers, path: string): DocumentChange {
  const problems: FieldMessages = {};
  const knownId = data?.id ?? (conditions && idIn(conditions));
  if (!isKind(operation)) problems[`${path}.operation`] = ['must be create, update or delete'];
  if (!isName(collection ?? '')) problems[`${path}.collection`] = [nameRule];
  if (operation !== 'create' && knownId === undefined) {
    problems[`${path}.data.id`] = ['is required and missing, and conditions have no id either'];
  } else if (!data && operation !== 'delete') problems[`${path}.data`] = ['is required and missing'];
  if (!isKind(operation) || Object.keys(problems).length > 0) throw invalid('The request is not valid', problems);
  const id = (operation === 'create' ? data?.id : knownId) ?? newDocumentId();
  // A document that an earlier release stored under such an id can be deleted here.
  if (operation !== 'delete') requireAddressable({ id }, `${path}.data`);
  return {
    collection: collection!,
    id,
    kind: kinds[operation],
    body: data?.text ?? noBytes,
    ...(operation === 'update' && { patch: data!.patch }),
    condition: conditions,
    path: `${path}.data`,
  };
}

const noBytes = Buffer.alloc(0);

/** The id that a record must have to meet a condition, where that is said by an equality. */
function idIn(condition: Condition): string | undefined {
  if (condition.kind === 'and') return condition.conditions.map(idIn).find((id) => id !== undefined);
  const isOfId = condition.kind === 'is' && condition.path.length === 1 && condition.path[0] === 'id';
  return isOfId && typeof condition.value === 'string' ? condition.value : undefined;
}

const isKind = (operation: string | undefined): operation is keyof typeof kinds =>
  operation !== undefined && Object.hasOwn(kinds, operation);

function refuseRepeated(changes: readonly DocumentChange[]): void {
  const seen = new Set<string>();
  for (const { collection, id, path } of changes) {
    const key = documentKey(collection, id);
    if (seen.has(key))
      throw wrong(`${path}.id`, 'is that of an earlier operation: an atomic batch changes each document once');
    seen.add(key);
  }
}

const wrong = (path: string, message: string): Error => invalid('The request is not valid', { [path]: [message] });
