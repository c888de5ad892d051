import { isAbsolute, join } from 'node:path';
import { jsonText, parseAsWritten } from '../exact-json.ts';
import { Failure } from '../failure.ts';
import type { CollectionFacts, ListFacts } from './app-manifest.ts';
import { fileBytes } from './file-bytes.ts';
import { RecordCutter } from './record-cutter.ts';

/** A file (blob) in the folder of an app: a line of the list of its collection. */
export interface ListedFile {
  blob_id: string;
  content_type: string;
  /** Null where it was uploaded without a name. */
  filename: string | null;
  size_bytes: number;
  sha256: string;
}

/** The form of ids that the service makes, and takes from a client. */
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** The path of the list of the files of a collection, by that of its documents. */
export const listFileOf = (documentsFile: string): string => documentsFile.replace(/^documents\//, 'files/');

export const pathOfFile = (folder: string, list: string, blobId: string): string =>
  join(folder, list.replace(/\.ndjson$/, ''), blobId);

/** The whole records of a file of lines, some at a time. */
export async function* recordsOf(path: string): AsyncGenerator<Buffer, void, undefined> {
  const cutter = new RecordCutter(false);
  for await (const chunk of fileBytes(path)) {
    const records = cutter.cut(chunk);
    if (records) yield records.bytes;
  }
  if (cutter.isWithinRecord) throw new Failure(`${path} ends within a line`);
}

/** The lines of some whole records, without their ends. */
export const linesOf = (records: Buffer): string[] => records.toString().split('\n').slice(0, -1);

/** Whether a line is a document that may be the one that the service has made for a file: the file itself decides. */
export function describesBlob(line: string): boolean {
  if (!line.includes('"blob_id"')) return false;
  const { id, blob_id, sha256, size_bytes, deleted } = JSON.parse(line) as Record<string, unknown>;
  const isHash = typeof sha256 === 'string' && /^[0-9a-f]{64}$/.test(sha256);
  return (
    typeof id === 'string' && blob_id === id && uuid.test(id) && isHash && Number.isInteger(size_bytes) && !deleted
  );
}

/** The entries of a list. Throws Failure for a line that is none. */
export async function* listedFiles(folder: string, list: string): AsyncGenerator<ListedFile, void, undefined> {
  for await (const records of recordsOf(join(folder, list))) {
    for (const line of linesOf(records)) {
      const file = JSON.parse(line) as ListedFile;
      if (!uuid.test(file.blob_id)) throw new Failure(`${join(folder, list)} has a line that names no file`);
      yield file;
    }
  }
}

/** Some documents of a collection: those to be stored, and those that describe files of the folder. */
export interface SortedDocuments {
  plain: Buffer;
  described: Array<{ document: string; file: ListedFile }>;
}

/** The documents of a collection in their order. Throws Failure where its list names a file that none describes. */
export async function* sortedDocuments(
  folder: string,
  { file: documentsFile, uploads }: CollectionFacts,
): AsyncGenerator<SortedDocuments, void, undefined> {
  const files = uploads ? listedFiles(folder, uploads.file) : undefined;
  let next = await files?.next();
  for await (const records of recordsOf(join(folder, documentsFile))) {
    if (!next || next.done || !records.includes('"blob_id"')) {
      yield { plain: records, described: [] };
      continue;
    }
    const plain: string[] = [];
    const described: SortedDocuments['described'] = [];
    for (const document of linesOf(records)) {
      const file: ListedFile | undefined = next?.value ?? undefined;
      if (file && describesBlob(document) && idOf(document) === file.blob_id) {
        described.push({ document, file });
        next = await files?.next();
      } else plain.push(`${document}\n`);
    }
    yield { plain: Buffer.from(plain.join('')), described };
  }
  if (next && !next.done) throw new Failure(`No document describes the file ${next.value.blob_id} of ${uploads!.file}`);
}

const idOf = (document: string): unknown => (JSON.parse(document) as { id: unknown }).id;

/** The documents of a collection that are to be stored, from a byte of theirs on. */
export async function* plainDocuments(
  folder: string,
  facts: CollectionFacts,
  start: number,
): AsyncGenerator<Buffer, void, undefined> {
  if (!facts.uploads) return yield* fileBytes(join(folder, facts.file), start);
  let passed = 0;
  for await (const { plain } of sortedDocuments(folder, facts)) {
    if (passed + plain.length > start) yield plain.subarray(Math.max(0, start - passed));
    passed += plain.length;
  }
}

/** Members that the service writes into the document of a file. */
const membersOfService = ['id', 'blob_id', 'content_type', 'size_bytes', 'uploaded_at', 'tx_hash', 'celestia_height'];

/** The JSON of the members that the client of the upload has given to the document of a file, as they are written. */
export function metadataOf(document: string): string {
  const members = Object.entries(parseAsWritten(document) as Record<string, unknown>);
  const taken = new Set([...membersOfService, 'sha256', 'deleted']);
  return jsonText(Object.fromEntries(members.filter(([name]) => !taken.has(name))));
}

/** Whether a list is one of the folder, as an export writes it. */
export const isListOfFolder = ({ file, sha256, count, document_bytes: bytes }: ListFacts): boolean =>
  !isAbsolute(file) &&
  /^files\/[A-Za-z0-9_.-]+\.ndjson$/.test(file) &&
  /^[0-9a-f]{64}$/.test(sha256) &&
  Number.isInteger(count) &&
  Number.isInteger(bytes);
