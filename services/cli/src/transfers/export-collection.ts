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

/** Exports a collection to a stream, as fast as that takes it. */
export async function exportToStream(
  request: ExportRequest,
  write: (bytes: Buffer) => Promise<void>,
  { app, signal, onProgress }: ExportCall,
): Promise<Exported> {
  const source = new ExportSource(app, request);
  const encoder = encoderOf(request);
  let pending: Buffer[] = [];
  let [pendingBytes, bytes] = [0, 0];
  const flush = async () => {
    if (pendingBytes > 0) await write(await encoder.encode(Buffer.concat(pending)));
    pending = [];
    pendingBytes = 0;
  };
  for await (const records of source.read(signal)) {
    pending.push(records.bytes);
    pendingBytes += records.bytes.length;
    bytes += records.bytes.length;
    if (!request.isGzip || pendingBytes >= gzipPartBytes) await flush();
    onProgress({ records: source.records, bytes });
  }
  await flush();
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
  { app, url, signal, onProgress }: ExportCall,
): Promise<Exported> {
  const part = await PartFile.open(file, request, { url, app: app.id }, options);
  const source = new ExportSource(app, { ...request, height: part.height ?? request.height }, part.position);
  const encoder = encoderOf(request, part.position.bytes > 0);
  let pending: Buffer[] = [];
  let [pendingBytes, bytes, flushedMs] = [0, 0, performance.now()];
  const flush = async () => {
    if (pendingBytes === 0) return;
    const records = Buffer.concat(pending);
    pending = [];
    pendingBytes = 0;
    await part.add(await encoder.encode(records), source.position, source.height!);
    flushedMs = performance.now();
  };
  try {
    for await (const records of source.read(signal)) {
      pending.push(records.bytes);
      pendingBytes += records.bytes.length;
      bytes += records.bytes.length;
      if (pendingBytes >= flushBytes || performance.now() - flushedMs >= flushMs) await flush();
      onProgress({ records: source.records, bytes });
    }
    await flush();
    await part.finish(await encoder.end());
  } catch (error) {
    // Records that have come are kept; the error that is told is the first one.
    await flush().catch(() => {});
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
