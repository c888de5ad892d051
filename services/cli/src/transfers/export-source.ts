import { createHash, type Hash } from 'node:crypto';
import type { App } from '@granary/client';
import { Failure, isPassing } from '../failure.ts';
import { exportQuery, type ExportRequest } from './export-request.ts';
import { apiPath } from '../session/paths.ts';
import { BrokenOff, pauseAfter } from './passing.ts';
import { cellsOf, lineFeed, RecordCutter, type Records } from './record-cutter.ts';

/** How far an export is: behind a whole record. */
export interface Position {
  /** Bytes of the records so far, as the service sends them. */
  bytes: number;
  records: number;
  /** The first row of a table, with its end. */
  header?: string | undefined;
  /** The last record; undefined where records do not say which they are. */
  after?: { id: string; version?: number | undefined } | undefined;
  /** SHA-256 of the bytes so far, where there is no `after`. */
  sha256?: string | undefined;
}

export const beginning: Position = { bytes: 0, records: 0 };

/** Attempts without a record that came, some five minutes of them. */
const attemptsInVain = 40;
/** For a table the service reads all documents before the head comes where few meet a filter. Node waits no longer. */
const headTimeoutMs = 300_000;
/** Encoded characters of columns, filter and fields: the service takes a head of 16 KiB, with the keys and an id. */
const parametersLengthMax = 12_000;
/** The service takes no more columns by their names. */
const columnsMax = 1_000;

/**
 * The records of an export, byte for byte as the service sends them, whatever breaks off: it goes on behind the last
 * record. Where records do not say which they are, it begins anew, and passes over what has come already.
 */
export class ExportSource {
  /** The height of the request; without one it is known once something has come. */
  height: number | undefined;
  /** Remarks of the service on fields without a column, and on names that may be misspelt. */
  remarks: string[] = [];
  /** Records that have come, with those before its start. */
  records: number;
  private bytes: number;
  private header: string | undefined;
  /** Known once the header is. */
  private rowsTellIds: boolean | undefined;
  private after: Position['after'];
  /** The last record that has come since `after`. */
  private last: Buffer | undefined;
  /** The hash of the first `hashedBytes`, where records do not say which they are. */
  private hash: Hash = createHash('sha256');
  private hashedBytes = 0;
  /** The hash of the first `bytes`, unless so many are hashed. */
  private sha256: string | undefined;

  constructor(
    private readonly app: App,
    private readonly request: ExportRequest,
    { bytes, records, header, after, sha256 }: Position = beginning,
  ) {
    this.height = request.height;
    this.bytes = bytes;
    this.records = records;
    this.header = header;
    this.after = after;
    this.sha256 = sha256;
  }

  /** The position behind the records that `read` has yielded. */
  get position(): Position {
    const { bytes, records, header } = this;
    if (bytes === 0) return beginning;
    return this.tellsIds
      ? { bytes, records, header, after: this.lastRecord() }
      : { bytes, records, header, sha256: this.sha256SoFar() };
  }

  /** Throws GranaryError, Failure, and the reason of the signal. */
  async *read(signal: AbortSignal): AsyncGenerator<Records, void, undefined> {
    for (let inVain = 0; ;) {
      try {
        for await (const records of this.attempt(signal)) {
          inVain = 0;
          yield records;
        }
        return;
      } catch (error) {
        signal.throwIfAborted();
        if (!isPassing(error) || inVain >= attemptsInVain) throw error;
        await pauseAfter(inVain, signal);
        inVain += 1;
      }
    }
  }

  private async *attempt(signal: AbortSignal): AsyncGenerator<Records, void, undefined> {
    const { request, app } = this;
    const path = apiPath('apps', app.id, 'collections', request.collection, 'export');
    const response = await app.open(path, { query: this.query(), signal, timeoutMs: headTimeoutMs });
    this.noteHead(response.headers);
    const isTable = request.format === 'csv';
    const goesOn = this.bytes > 0 && this.tellsIds;
    let isHeaderDue = isTable && goesOn;
    const cutter = new RecordCutter(isTable);
    // A table may have empty lines: within a cell, and as a row.
    const chunks = isTable ? chunksOf(response) : withoutEmptyLines(chunksOf(response));
    for await (const chunk of goesOn ? chunks : this.unseen(chunks)) {
      const cut = cutter.cut(chunk);
      const records = cut && isHeaderDue ? this.withoutHeader(cut) : cut;
      if (cut) isHeaderDue = false;
      if (!records) continue;
      this.note(records);
      yield records;
    }
    if (cutter.isWithinRecord) throw new BrokenOff('within a record');
  }

  private query(): ReturnType<typeof exportQuery> {
    const query = exportQuery({ ...this.request, height: this.height });
    if (this.bytes === 0 || !this.tellsIds) return query;
    const record = this.lastRecord();
    if (this.header !== undefined) query['columns'] = cellsOf(this.header).join(',');
    return { ...query, after: record?.id, after_version: record?.version };
  }

  private noteHead(headers: Headers): void {
    const height = headers.get('x-granary-height');
    if (height === null) throw new Failure('The answer is not an export: it has no height');
    this.height = Number(height);
    if (this.bytes > 0) return;
    this.remarks = namesIn(headers, 'x-granary-hints');
    const omitted = namesIn(headers, 'x-granary-omitted-fields');
    if (omitted.length > 0) this.remarks.push(`These fields have no column: ${omitted.join(', ')}`);
  }

  private note({ bytes, count, first, last }: Records): void {
    const isHeaderFirst = this.request.format === 'csv' && this.header === undefined;
    if (isHeaderFirst) this.header = first.toString();
    this.bytes += bytes.length;
    this.records += isHeaderFirst ? count - 1 : count;
    if (!this.tellsIds) this.addToHash(bytes);
    else if (!isHeaderFirst || count > 1) this.last = last;
  }

  private addToHash(bytes: Buffer): void {
    this.hash.update(bytes);
    this.hashedBytes += bytes.length;
  }

  private sha256SoFar(): string | undefined {
    return this.hashedBytes === this.bytes ? this.hash.copy().digest('hex') : this.sha256;
  }

  /** Whether an export can go on behind a record, which is named by its id. */
  private get tellsIds(): boolean {
    const { format, select, hasHistory } = this.request;
    if (!hasHistory && select !== undefined && !select.includes('id')) return false;
    if (format !== 'csv') return true;
    if (this.header === undefined) return false;
    return (this.rowsTellIds ??= rowsTellIds(this.request, cellsOf(this.header)));
  }

  private lastRecord(): Position['after'] {
    if (!this.last) return this.after;
    const { hasHistory, format } = this.request;
    const text = this.last.toString();
    let value = (name: string): unknown => cellsOf(text)[cellsOf(this.header!).indexOf(name)];
    if (format !== 'csv') {
      const record = JSON.parse(text) as Record<string, unknown>;
      value = (name) => record[name];
    }
    this.after = { id: String(value('id')), version: hasHistory ? Number(value('version')) : undefined };
    this.last = undefined;
    return this.after;
  }

  /** The rows behind the header of an answer that goes on; undefined for none. */
  private withoutHeader({ bytes, count, first, last }: Records): Records | undefined {
    if (first.toString() !== this.header) throw new Failure('The columns are not those with which the export began');
    if (count === 1) return undefined;
    return { bytes: bytes.subarray(first.length), count: count - 1, first, last };
  }

  /** The chunks behind the bytes that have come already. Throws Failure where these are others now. */
  private async *unseen(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
    const sha256 = this.sha256SoFar();
    this.sha256 = sha256;
    this.hash = createHash('sha256');
    this.hashedBytes = 0;
    let left = this.bytes;
    for await (const chunk of chunks) {
      const seen = chunk.subarray(0, left);
      this.addToHash(seen);
      left -= seen.length;
      if (left === 0 && seen.length > 0 && this.sha256SoFar() !== sha256) throw otherBytes();
      if (seen.length < chunk.length) yield chunk.subarray(seen.length);
    }
    if (left > 0) throw otherBytes();
  }
}

/** Whether the rows below these columns say which documents they are, and the columns can be named in a URL. */
function rowsTellIds({ find, select, hasHistory, escapesFormulas }: ExportRequest, columns: string[]): boolean {
  const named = { columns: columns.join(','), find: find ?? '', select: select?.join(',') ?? '' };
  return (
    !escapesFormulas &&
    columns.includes('id') &&
    (!hasHistory || columns.includes('version')) &&
    columns.length <= columnsMax &&
    columns.every((name) => name.trim() === name && !/[,\r\n]/.test(name)) &&
    new URLSearchParams(named).toString().length <= parametersLengthMax
  );
}

const otherBytes = (): Failure =>
  new Failure('The records are not those with which the export began: some were erased meanwhile', {
    nextStep: '--restart begins anew.',
  });

const namesIn = (headers: Headers, name: string): string[] => JSON.parse(headers.get(name) ?? '[]') as string[];

/** By empty lines the service says that it is still there while no record comes. */
async function* withoutEmptyLines(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  let isLineStart = true;
  for await (const chunk of chunks) {
    const hasEmptyLine = (isLineStart && chunk[0] === lineFeed) || chunk.includes('\n\n');
    const lines = hasEmptyLine ? chunk.toString('latin1').replace(/\n{2,}/g, '\n') : '';
    const kept = hasEmptyLine ? Buffer.from(isLineStart ? lines.replace(/^\n/, '') : lines, 'latin1') : chunk;
    if (chunk.length > 0) isLineStart = chunk.at(-1) === lineFeed;
    yield kept;
  }
}

/** The bytes of an answer. Throws BrokenOff where they end too early. */
async function* chunksOf(response: Response): AsyncGenerator<Buffer, void, undefined> {
  try {
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      yield Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    }
  } catch (error) {
    const { cause, message } = error as Error;
    throw new BrokenOff(cause instanceof Error ? cause.message : message);
  }
}
