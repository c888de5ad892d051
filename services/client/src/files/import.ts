import { GranaryError, hasCode, isPassing, type ErrorCode } from '../errors.ts';
import { appPath, features, type AppContext } from '../http/app-context.ts';
import type { CallOptions } from '../http/transport.ts';
import { backoffMs, raced, sleep } from '../http/waiting.ts';
import { fileOf, piecesOf, sizeOf, type ByteSource, type FileSource } from './bytes-source.ts';

export interface ImportOptions extends CallOptions {
  /** `ndjson` if nothing else is said. */
  format?: 'ndjson' | 'json' | 'csv' | undefined;
  /** How a document is treated whose id is present: `upsert` if nothing else is said. */
  mode?: 'insert' | 'upsert' | 'skip' | undefined;
  /** How a record is treated that cannot be stored: `abort` if nothing else is said. */
  onError?: 'abort' | 'continue' | undefined;
  /** Reads and checks everything, and stores nothing. */
  dryRun?: boolean | undefined;
  /** The columns of a table that has no line of names. */
  columns?: readonly string[] | undefined;
  types?: Record<string, 'string' | 'number' | 'boolean' | 'json'> | undefined;
  empty?: 'missing' | 'null' | 'string' | undefined;
  separator?: ',' | ';' | '|' | 'tab' | undefined;
  /** Goes on with an import that has begun, with the same file from its beginning; the options are those it has. */
  importId?: string | undefined;
  /** The place in the file where the source begins: at a byte that is stored already. 0 if nothing else is said. */
  sourceStart?: number | undefined;
  /** Is told how far the import is, at its beginning and after each part. */
  onProgress?: ((progress: ImportReport) => void) | undefined;
}

/** An import as the service reports it. */
export interface ImportReport {
  import_id: string;
  collection: string;
  status: 'open' | 'completed' | 'failed';
  /** How many bytes of the file are stored. */
  offset: number;
  lines: number;
  written: number;
  skipped: number;
  failed: number;
  /** The height of the last commit; null where nothing was stored. */
  height: number | null;
  error: { error: string; code: string; details: Record<string, unknown> } | null;
}

/** Twice as much is held in memory. */
const partBytes = 4 * 1_024 * 1_024;
/** A part is answered once it is stored, which takes as long as it takes. */
const partTimeoutMs = 300_000;
/** Attempts without a record that was stored, some three minutes of them. */
const attemptsInVain = 40;

/**
 * Stores the records of a file, part by part. What breaks off goes on where it is stored; no record is lost and none is
 * stored twice. Resolves to the report. Throws GranaryError with the code of the first record that cannot be stored,
 * unless these are to be passed over; `details` says its line and what was stored.
 */
export async function importRecords(
  context: AppContext,
  collection: string,
  source: ByteSource,
  options: ImportOptions = {},
): Promise<ImportReport> {
  const file = fileOf(source);
  const begun = await beginImport(context, collection, file, options);
  options.onProgress?.(begun);
  if (begun.status !== 'open') return ended(begun);
  return new ImportedFile(context, file, options, begun).send();
}

function beginImport(
  context: AppContext,
  collection: string,
  source: FileSource,
  options: ImportOptions,
): Promise<ImportReport> {
  const { format, mode, onError, dryRun, columns, types, empty, separator, importId, signal } = options;
  const feature = features.import;
  if (importId !== undefined) {
    return context.transport.json({ method: 'GET', path: appPath(context, 'imports', importId), signal, feature });
  }
  const json = {
    collection,
    format,
    mode,
    on_error: onError,
    dry_run: dryRun,
    columns,
    types,
    empty,
    separator,
    size_bytes: sizeOf(source),
  };
  return context.transport.json({ method: 'POST', path: appPath(context, 'imports'), json, signal, feature });
}

/** The part of a file that is not stored yet, as far as it was read. */
class ImportedFile {
  private readonly context: AppContext;
  private readonly options: ImportOptions;
  private readonly pieces: AsyncGenerator<Uint8Array, void, undefined>;
  private report: ImportReport;
  private window: Uint8Array[] = [];
  private windowBytes = 0;
  /** Offset of the first byte of the window. */
  private start: number;
  private isRead = false;

  constructor(context: AppContext, source: FileSource, options: ImportOptions, report: ImportReport) {
    this.context = context;
    this.options = options;
    this.pieces = piecesOf(source);
    this.start = options.sourceStart ?? 0;
    this.report = report;
  }

  async send(): Promise<ImportReport> {
    const { signal } = this.options;
    try {
      for (let inVain = 0; this.report.status === 'open';) {
        const { offset } = this.report;
        await this.fill();
        try {
          this.report = await this.sendWindow();
        } catch (error) {
          if (!isPassing(error) && !hasCode(error, 'IMPORT_OFFSET_MISMATCH') && !hasCode(error, 'IMPORT_ENDED')) {
            throw error;
          }
          if (inVain >= attemptsInVain) throw error;
          await sleep(backoffMs(inVain, error.retryAfterMs), signal);
          inVain += 1;
          this.report = await this.present().catch((again: unknown) => {
            if (isPassing(again)) return this.report;
            throw again;
          });
        }
        if (this.report.offset !== offset) inVain = 0;
        this.options.onProgress?.(this.report);
      }
    } finally {
      // A source that is waited for answers to that only once it has come.
      void this.pieces.return().catch(() => {});
    }
    return ended(this.report);
  }

  private present(): Promise<ImportReport> {
    const { signal } = this.options;
    const path = appPath(this.context, 'imports', this.report.import_id);
    return this.context.transport.json({ method: 'GET', path, signal });
  }

  /** Drops what is stored, and reads until there is a part. */
  private async fill(): Promise<void> {
    for (;;) {
      this.dropStored();
      if (this.isRead || this.windowBytes >= partBytes) break;
      const { done, value } = await raced(this.pieces.next(), this.options.signal);
      if (done) this.isRead = true;
      else if (value.byteLength > 0) this.window.push(value);
      this.windowBytes += value?.byteLength ?? 0;
    }
    if (this.start === this.report.offset) return;
    const message = `The file has ${this.start} bytes, and the import has stored ${this.report.offset}`;
    throw new GranaryError(message, { code: 'IMPORT_OFFSET_MISMATCH', details: { offset: this.report.offset } });
  }

  private dropStored(): void {
    for (;;) {
      const [first] = this.window;
      const bytes = Math.min(this.report.offset - this.start, first?.byteLength ?? 0);
      if (!first || bytes <= 0) return;
      this.start += bytes;
      this.windowBytes -= bytes;
      if (bytes === first.byteLength) this.window.shift();
      else this.window[0] = first.subarray(bytes);
    }
  }

  private sendWindow(): Promise<ImportReport> {
    const { context, report, options } = this;
    const body = new Blob(this.window as BlobPart[]);
    return context.transport.json({
      method: 'PATCH',
      path: appPath(context, 'imports', report.import_id),
      headers: {
        'Content-Type': 'application/octet-stream',
        'Upload-Offset': String(this.start),
        'Upload-Complete': this.isRead ? '?1' : '?0',
      },
      body: () => body,
      // The client asks how much of it is stored before it sends the part again.
      isOnce: true,
      signal: options.signal,
      timeoutMs: options.timeoutMs ?? partTimeoutMs,
    });
  }
}

function ended(report: ImportReport): ImportReport {
  const { error, status, import_id, written, skipped, failed, height } = report;
  if (status !== 'failed') return report;
  const details = { import_id, ...error?.details, written, skipped, failed, height };
  throw new GranaryError(error?.error ?? 'The import failed', {
    code: (error?.code ?? 'INTERNAL') as ErrorCode,
    details,
  });
}
