import { crc32 } from 'node:zlib';
import type { Task } from '@granary/shared/concurrency/time-slicing';
import { ServiceError } from '@granary/shared/errors';
import { JsonReader } from '@granary/shared/json/reader';
import type { CollectionRef } from '../catalog/collection';
import { SCHEMA_VIOLATION } from '../catalog/schema';
import { prepareDocumentOf, type PreparedDocument } from '../documents/parser';
import { rulesOf } from '../documents/rules';
import { compileWatch, readDocument } from '../json/document';
import { OrderedKeys } from '../values/ordered-key';
import { toKept, type KeptRefusal } from '../writes/change-write';
import type { FilePlace } from './import-state';
import type { FileRecord, RecordReader } from './records/record';

/** Records of one commit, at most, and about how many bytes of them. */
const batchMax = { records: 1_000, bytes: 1024 * 1024 };
/** Bytes that a record counts for that has no text: those of its error. */
const refusedBytes = 8 * 1024;
/** Bytes of the keys of a document, roughly. */
const keyBytes = 64;

/** A record of a file, with its place in that. */
export interface PlacedRecord {
  /** Counted from 1. */
  line: number;
  /** Between the record before it and this one. */
  before: FilePlace;
  /** The offset of its first byte in the file. */
  offset: number;
  /** Its JSON text, where it has one. */
  text: Buffer | undefined;
  refusal: KeptRefusal | undefined;
  /** Whether the file cannot be read beyond it. */
  isFatal: boolean;
}

/** A record that is ready to be written, or refused. */
export interface ImportRecord extends PlacedRecord {
  document: PreparedDocument | undefined;
}

/** Records that follow each other in a file. */
export interface PlacedBatch {
  placed: readonly PlacedRecord[];
  to: FilePlace;
}

/** Records that are prepared for a collection in one state of the catalog. */
export interface ImportBatch extends Pick<PlacedBatch, 'to'> {
  records: readonly ImportRecord[];
  collection: CollectionRef | undefined;
}

/** The part of a file that is being read. */
export interface FilePart {
  bytes: Buffer;
  /** The place at which it begins. */
  from: FilePlace;
}

/** The next records of a part of a file; undefined where it has nothing more that is whole. */
export function nextBatch(part: FilePart, reader: RecordReader): PlacedBatch | undefined {
  const { position: begin } = reader;
  const placed: PlacedRecord[] = [];
  let bytes = 0;
  let isReadable = true;
  while (isReadable && placed.length < batchMax.records && bytes < batchMax.bytes) {
    const before = placeOf(part, reader);
    const next = reader.next();
    if (!next) break;
    placed.push(toPlaced(part, before, next));
    // Errors of records may be longer than these.
    bytes += next.text?.length ?? refusedBytes;
    isReadable = !next.refusal?.isFatal;
  }
  return placed.length > 0 || reader.position > begin ? { placed, to: placeOf(part, reader) } : undefined;
}

/** The place of a reader in a file. Most places are never looked at, so the checksum is computed when it is read. */
function placeOf({ bytes, from }: FilePart, { position, lines, state }: RecordReader): FilePlace {
  return {
    offset: from.offset + position,
    lines: from.lines + lines,
    reader: state,
    get checksum() {
      return crc32(bytes.subarray(0, position), from.checksum);
    },
  };
}

function toPlaced({ from }: FilePart, before: FilePlace, { start, line, text, refusal }: FileRecord): PlacedRecord {
  return {
    line: from.lines + line + 1,
    before,
    offset: from.offset + start,
    text,
    isFatal: refusal?.isFatal === true,
    refusal: refusal && {
      code: 'INVALID_ARGUMENT',
      reason: refusal.code,
      message: refusal.message,
      details: refusal.details ?? {},
    },
  };
}

/** Reasons for which a document is refused, and another one may be written. */
const reasonsOfDocuments: ReadonlySet<string> = new Set([
  'MALFORMED_JSON',
  'VALIDATION_FAILED',
  SCHEMA_VIOLATION,
  'DOCUMENT_TOO_LARGE',
]);

/** Prepares records for a collection; yields after each. Throws what is not the fault of one of them. */
export function* preparingSteps({ placed, to }: PlacedBatch, collection: CollectionRef | undefined): Task<ImportBatch> {
  const rules = rulesOf(collection);
  const keys = new OrderedKeys(rules.keys.length === 0 ? 0 : keyBytes * placed.length);
  const records: ImportRecord[] = [];
  for (const record of placed) {
    records.push(prepare(record, (text) => prepareDocumentOf(undefined, text, rules, { keys })));
    yield;
  }
  return { to, records, collection };
}

function prepare(record: PlacedRecord, prepareText: (text: Buffer) => PreparedDocument): ImportRecord {
  if (record.text === undefined || record.refusal) return { ...record, document: undefined };
  try {
    return { ...record, document: prepareText(record.text) };
  } catch (error) {
    if (!(error instanceof ServiceError) || !reasonsOfDocuments.has(error.reason)) throw error;
    return { ...record, document: undefined, refusal: toKept(error) };
  }
}

const watchNothing = compileWatch([]);

/** The id of a record, of a refused one too where it can be read. */
export function idOf({ document, text }: Pick<ImportRecord, 'document' | 'text'>): string | undefined {
  if (document) return document.id;
  if (text === undefined) return undefined;
  try {
    return readDocument(new JsonReader(text, { maxDepth: 66 }), watchNothing).id ?? undefined;
  } catch {
    return undefined;
  }
}
