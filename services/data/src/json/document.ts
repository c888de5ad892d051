import { KeyTable } from './key-table';
import { hashKey } from '@granary/shared/json/bytes';
import { JsonError } from '@granary/shared/json/error';
import type { JsonReader, JsonType } from '@granary/shared/json/reader';
import { JsonNumber } from '@granary/shared/json/value';

/** Levels of objects and arrays in a document; its own object is the first. */
export const documentDepthMax = 64;
/** Bytes of a document's text as received. */
export const documentSizeMaxBytes = 1024 * 1024;
/** Characters (code points) of an id. */
export const documentIdLengthMax = 256;

/** The bytes of a value: from `start` up to, but without, `end` of the buffer that was read. */
export interface Extent {
  readonly start: number;
  readonly end: number;
}

export interface Capture extends Extent {
  readonly type: JsonType;
}

/** The watched paths as a tree of steps; compiled once for each set of paths. */
export interface WatchTree {
  readonly root: WatchNode;
  readonly pathCount: number;
}

interface WatchNode {
  /** Which of the paths end here. */
  readonly paths: readonly number[];
  /** The next steps through an object; undefined where no path goes on. */
  readonly members: KeyTable<WatchNode> | undefined;
  /** The next steps that are also indexes of an array. */
  readonly elements: ReadonlyMap<number, WatchNode> | undefined;
}

export interface ScannedDocument extends Extent {
  /** The id as it will be stored: a decoded string, or the text of a number; null if there is none. */
  readonly id: string | null;
  /** The type of the id in the text. */
  readonly idType: 'string' | 'number' | 'null' | 'missing';
  /** The value of the key `id`; undefined if it is missing. */
  readonly idExtent: Extent | undefined;
  /** Whether the top-level `deleted` is literally true. */
  readonly deleted: boolean;
  /** The offset after the opening brace, where members can be inserted. */
  readonly bodyStart: number;
  /** Whether the object has no members, so that no comma must follow inserted ones. */
  readonly empty: boolean;
  /**
   * The type and extent of the value at each watched path, in the order of compileWatch; undefined where it is missing.
   */
  readonly captures: readonly (Capture | undefined)[];
}

const idKey = Buffer.from('id');
const idHash = hashKey(idKey);
const deletedKey = Buffer.from('deleted');
const deletedHash = hashKey(deletedKey);
const arrayIndex = /^(?:0|[1-9][0-9]{0,8})$/;

/** The index of an array that a step of a path stands for: digits without leading zeros; undefined for any other. */
export function arrayStep(step: string): number | undefined {
  return arrayIndex.test(step) ? Number(step) : undefined;
}

/**
 * Compiles the paths whose values readDocument shall capture. Steps walk the keys of objects; a step of digits also
 * indexes an array.
 */
export function compileWatch(paths: readonly (readonly string[])[]): WatchTree {
  const compile = (depth: number, entries: readonly number[]): WatchNode => {
    const entriesByStep = new Map<string, number[]>();
    for (const entry of entries) {
      const step = paths[entry]?.[depth];
      if (step === undefined) continue;
      const same = entriesByStep.get(step);
      if (same === undefined) entriesByStep.set(step, [entry]);
      else same.push(entry);
    }
    const nodes = new Map([...entriesByStep].map(([step, same]) => [step, compile(depth + 1, same)]));
    const elements = new Map<number, WatchNode>();
    for (const [step, node] of nodes) {
      const index = arrayStep(step);
      if (index !== undefined) elements.set(index, node);
    }
    return {
      paths: entries.filter((entry) => paths[entry]?.length === depth),
      members: nodes.size === 0 ? undefined : new KeyTable(nodes),
      elements: elements.size === 0 ? undefined : elements,
    };
  };
  return { root: compile(0, [...paths.keys()]), pathCount: paths.length };
}

/** Takes the members of a document while it is read. */
export interface MemberReader {
  /** Reads the value of the member whose key was read last. */
  readMember(reader: JsonReader, type: JsonType): void;
}

export interface ReadDocumentOptions {
  /** Larger for stored text, which has an id and defaults in addition. */
  sizeMaxBytes?: number;
  /** Reads the values of the members that no watched path leads through. */
  members?: MemberReader;
}

/**
 * Reads and validates the next document in one pass. Throws JsonError: those of the reader, and NOT_AN_OBJECT,
 * TOO_DEEP, TOO_LARGE, INVALID_ID.
 */
export function readDocument(
  reader: JsonReader,
  watch: WatchTree,
  { sizeMaxBytes = documentSizeMaxBytes, members }: ReadDocumentOptions = {},
): ScannedDocument {
  if (reader.peekType() !== 'object') reader.fail('NOT_AN_OBJECT', 'A document must be a JSON object');
  const outerMaxDepth = reader.maxDepth;
  reader.maxDepth = reader.depth + documentDepthMax;
  const start = reader.position;
  const captures = new Array<Capture | undefined>(watch.pathCount).fill(undefined);
  let id: string | null = null;
  let idType: ScannedDocument['idType'] = 'missing';
  let idExtent: Extent | undefined;
  let deleted = false;
  let empty = true;

  reader.enterObject();
  const bodyStart = reader.position;
  while (reader.nextMember()) {
    empty = false;
    const isId = reader.keyHash === idHash && reader.keyIs(idKey);
    const isDeleted = reader.keyHash === deletedHash && reader.keyIs(deletedKey);
    const node = watch.root.members?.find(reader);
    const type = reader.peekType();
    const valueStart = reader.position;
    if (node !== undefined) captureValue(reader, node, captures);
    else if (members !== undefined) members.readMember(reader, type);
    else reader.skipValue();
    if (isId) {
      idExtent = { start: valueStart, end: reader.position };
      idType = idTypeOf(reader, type);
      id = idOf(reader, type, idExtent);
    } else if (isDeleted) {
      deleted = type === 'boolean' && reader.bytes[valueStart] === 0x74;
    }
  }
  const end = reader.position;
  if (end - start > sizeMaxBytes) {
    reader.fail('TOO_LARGE', `A document may have at most ${sizeMaxBytes} bytes`);
  }
  for (const path of watch.root.paths) captures[path] = { type: 'object', start, end };
  reader.maxDepth = outerMaxDepth;
  return { start, end, id, idType, idExtent, deleted, bodyStart, empty, captures };
}

/** Throws JsonError, TOO_LARGE, where a document is too large without `addedBytes` of its text. */
export function assertDocumentSize({ start, end }: Pick<ScannedDocument, 'start' | 'end'>, addedBytes: number): void {
  if (end - start - addedBytes <= documentSizeMaxBytes) return;
  throw new JsonError('TOO_LARGE', start, `A document may have at most ${documentSizeMaxBytes} bytes`);
}

function captureValue(reader: JsonReader, node: WatchNode, captures: (Capture | undefined)[]): void {
  const type = reader.peekType();
  const start = reader.position;
  if (type === 'object' && node.members !== undefined) {
    reader.enterObject();
    while (reader.nextMember()) {
      const next = node.members.find(reader);
      if (next === undefined) reader.skipValue();
      else captureValue(reader, next, captures);
    }
  } else if (type === 'array' && node.elements !== undefined) {
    reader.enterArray();
    for (let index = 0; reader.nextElement(); index += 1) {
      const next = node.elements.get(index);
      if (next === undefined) reader.skipValue();
      else captureValue(reader, next, captures);
    }
  } else {
    reader.skipValue();
  }
  for (const path of node.paths) captures[path] = { type, start, end: reader.position };
}

function idTypeOf(reader: JsonReader, type: JsonType): 'string' | 'number' | 'null' {
  if (type === 'string' || type === 'number' || type === 'null') return type;
  return reader.fail('INVALID_ID', 'The id of a document must be a string or a number');
}

function idOf(reader: JsonReader, type: JsonType, extent: Extent): string | null {
  if (type === 'null') return null;
  if (type === 'number') return textAt(reader.bytes, extent);
  const id = stringAt(reader.bytes, extent);
  if (!isDocumentId(id)) reader.fail('INVALID_ID', `The id of a document ${idRule}`);
  return id;
}

export const idRule = `must have 1 to ${documentIdLengthMax} characters`;

/** Whether a text that can be stored may be the id of a document. */
export function isDocumentId(text: string): boolean {
  if (text.length <= documentIdLengthMax) return text !== '';
  // A code point takes up to two units, so only ids between the two bounds have to be counted.
  return text.length <= 2 * documentIdLengthMax && Array.from(text).length <= documentIdLengthMax;
}

/** The text of a value as written. */
export function textAt(buffer: Buffer, extent: Extent): string {
  return buffer.toString('utf8', extent.start, extent.end);
}

/** A captured scalar, numbers with their text as written; undefined for an array, an object and a missing value. */
export function scalarAt(
  buffer: Buffer,
  capture: Capture | undefined,
): null | boolean | string | JsonNumber | undefined {
  switch (capture?.type) {
    case 'string':
      return stringAt(buffer, capture);
    case 'number':
      return new JsonNumber(textAt(buffer, capture));
    case 'boolean':
      return buffer[capture.start] === 0x74;
    case 'null':
      return null;
    default:
      return undefined;
  }
}

function stringAt(buffer: Buffer, extent: Extent): string {
  const text = textAt(buffer, extent);
  return text.includes('\\') ? (JSON.parse(text) as string) : text.slice(1, -1);
}

/** A part of a text, and what takes its place. */
export interface Replacement extends Extent {
  readonly text: string;
}

/**
 * The text of a document that was read from the buffer, with an id and defaults added at its beginning, and parts of it
 * replaced; a view of the buffer where nothing changes. The key of a default must not be in the document, and no
 * replaced part may overlap another or the id.
 */
export function spliceText(
  buffer: Buffer,
  document: ScannedDocument,
  added: {
    id?: string;
    defaults: readonly { key: string; jsonText: string }[];
    replacements?: readonly Replacement[];
  },
): Buffer {
  const id = added.id ?? document.id;
  const members: string[] = [];
  const replaced: Replacement[] = [...(added.replacements ?? [])];
  if (id !== null && (document.idType !== 'string' || id !== document.id)) {
    const text = JSON.stringify(id);
    if (document.idExtent === undefined) members.push(`"id":${text}`);
    else replaced.push({ ...document.idExtent, text });
  }
  for (const { key, jsonText } of added.defaults) {
    // The id is handled above; with a second one Postgres would read the text differently.
    if (key !== 'id') members.push(`${JSON.stringify(key)}:${jsonText}`);
  }
  if (members.length === 0 && replaced.length === 0) return buffer.subarray(document.start, document.end);

  const parts = [buffer.subarray(document.start, document.bodyStart)];
  if (members.length > 0) parts.push(Buffer.from(members.join(',') + (document.empty ? '' : ',')));
  let position = document.bodyStart;
  for (const { start, end, text } of replaced.sort((one, other) => one.start - other.start)) {
    parts.push(buffer.subarray(position, start), Buffer.from(text));
    position = end;
  }
  parts.push(buffer.subarray(position, document.end));
  return Buffer.concat(parts);
}
