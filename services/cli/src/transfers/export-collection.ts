import type { App } from '@granary/client';
import type { ExportRequest } from './export-request.ts';
import { ExportSource } from './export-source.ts';
import { PartFile, type PartFileOptions } from './part-file.ts';
import { RecordEncoder } from './record-encoder.ts';

export interface Exported {
  records: number;
  height: number;
  /** Remarks of the service on fields and names. */
  remarks: string[];
}

/** Is told how far an export is: records in all, and bytes that have come since it was called. */
export type ExportListener = (progress: { records: number; bytes: number }) => void;

export interface ExportCall {
  app: App;
  url: string;
  signal: AbortSignal;
  onProgress: ExportListener;
}

/** Records are added to a file once there are so many bytes of them, or so much time is over. */
const flushBytes = 8 * 1_024 * 1_024;
const flushMs = 5_000;
/** A part of a compressed stream. */
const gzipPartBytes = 1_024 * 1_024;

const encoderOf = ({ format, isGzip }: ExportRequest, hasRecords = false): RecordEncoder =>
  new RecordEncoder({ isArray: format === 'json', isGzip }, hasRecords);

/** Records that wait until there are enough of them to be written together. */
class PendingRecords {
  private parts: Buffer[] = [];
  private partBytes = 0;
  private flushedMs = performance.now();

  /** `max`: the bytes and the time of records that wait. */
  constructor(
    private readonly max: { bytes: number; ms: number },
    private readonly write: (records: Buffer) => Promise<void>,
  ) {}

  /** Takes all records of an export, and writes them all. */
  async readAll(source: ExportSource, { signal, onProgress }: ExportCall): Promise<void> {
    let bytes = 0;
    for await (const records of source.read(signal)) {
      this.parts.push(records.bytes);
      this.partBytes += records.bytes.length;
      bytes += records.bytes.length;
      if (this.partBytes >= this.max.bytes || performance.now() - this.flushedMs >= this.max.ms) await this.flush();
      onProgress({ records: source.records, bytes });
    }
    await this.flush();
  }

  async flush(): Promise<void> {
    if (this.partBytes === 0) return;
    const records = Buffer.concat(this.parts);
    this.parts = [];
    this.partBytes = 0;
    await this.write(records);
    this.flushedMs = performance.now();
  }
}

/** Exports a collection to a stream, as fast as that takes it. */
export async function exportToStream(
  request: ExportRequest,
  write: (bytes: Buffer) => Promise<void>,
  call: ExportCall,
): Promise<Exported> {
  const source = new ExportSource(call.app, request);
  const encoder = encoderOf(request);
  const max = { bytes: request.isGzip ? gzipPartBytes : 1, ms: Infinity };
  const pending = new PendingRecords(max, async (records) => write(await encoder.encode(records)));
  await pending.readAll(source, call);
  await write(await encoder.end());
  return exported(source);
}

/**
 * Exports a collection to a file, which is there under its name once it is whole. What was exported before, and is not
 * whole, goes on. Throws UsageError, Failure, GranaryError, and the reason of the signal.
 */
export async function exportToFile(
  file: string,
  request: ExportRequest,
  options: PartFileOptions,
  call: ExportCall,
): Promise<Exported> {
  const { app, url } = call;
  const part = await PartFile.open(file, request, { url, app: app.id }, options);
  const source = new ExportSource(app, { ...request, height: part.height ?? request.height }, part.position);
  const encoder = encoderOf(request, part.position.bytes > 0);
  const pending = new PendingRecords({ bytes: flushBytes, ms: flushMs }, async (records) =>
    part.add(await encoder.encode(records), source.position, source.height!),
  );
  try {
    await pending.readAll(source, call);
    await part.finish(await encoder.end());
  } catch (error) {
    // Records that have come are kept; the error that is told is the first one.
    await pending.flush().catch(() => {});
    await part.close();
    throw error;
  }
  return exported(source);
}

const exported = (source: ExportSource): Exported => ({
  records: source.records,
  height: source.height!,
  remarks: source.remarks,
});
