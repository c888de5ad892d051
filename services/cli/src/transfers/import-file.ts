import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { pipeline } from 'node:stream';
import { createGunzip } from 'node:zlib';
import type { App, ImportReport } from '@granary/client';
import { Failure, isGranaryError, isPassing, UsageError } from '../failure.ts';
import { apiPath } from '../session/paths.ts';
import { fileBytes } from './file-bytes.ts';
import { kindOf } from './formats.ts';
import { otherImport, stdinName, type FileMark, type ImportDefinition, type ImportState } from './import-request.ts';
import { readState, removeState, writeState } from './state-file.ts';

export interface ImportCall {
  app: App;
  url: string;
  signal: AbortSignal;
  /** An import of the file that has begun is forgotten. */
  restarts: boolean;
  /** The bytes are those of the file as it is read; `totalBytes` is undefined where nobody knows how long it is. */
  onProgress: (progress: { report: ImportReport; bytes: number; totalBytes: number | undefined }) => void;
  /** Is told why the import could not go on after a break. */
  onUnresumable: (reason: string) => void;
}

/** An import that has ended, of which the state is still there. */
export interface EndedImport {
  report: ImportReport;
  /** Removes the file that says where to go on. */
  forget(): Promise<void>;
}

const dropTimeoutMs = 2_000;

export const importStateOf = (file: string): string => `${file}.granary-import`;

/**
 * Stores the documents of a file, or of stdin. A file whose import has begun goes on where it is stored. Throws
 * UsageError, Failure, GranaryError, and the reason of the signal.
 */
export async function importFile(
  file: string,
  collection: string,
  definition: ImportDefinition,
  call: ImportCall,
): Promise<EndedImport> {
  const { app, signal } = call;
  if (file === stdinName) {
    const report = await begin(app, collection, definition, undefined, signal);
    try {
      return { report: await send(report, process.stdin, 0, call), forget: async () => {} };
    } catch (error) {
      // Nobody can go on with it, and an app may have few that are open.
      if (!(await hasEnded(app, report.import_id, error, signal))) await dropImport(app, report.import_id);
      throw error;
    } finally {
      // Node would wait for its end.
      process.stdin.destroy();
    }
  }
  const mark = await markOf(file);
  const report = await resumed(file, collection, definition, mark, call);
  try {
    const sent = report.status === 'open' ? await sendFile(file, mark, report, call) : checkedReport(report);
    return { report: sent, forget: () => removeState(importStateOf(file)) };
  } catch (error) {
    if (await hasEnded(app, report.import_id, error, signal)) await removeState(importStateOf(file));
    throw error;
  }
}

/** The import of the file that has begun, or else a new one. */
async function resumed(
  file: string,
  collection: string,
  definition: ImportDefinition,
  mark: FileMark,
  { app, url, signal, restarts, onUnresumable }: ImportCall,
): Promise<ImportReport> {
  const place = { url, app: app.id };
  const stateFile = importStateOf(file);
  const state = await readState<ImportState>(stateFile).catch((error: unknown) => {
    if (restarts) return undefined;
    throw error;
  });
  if (state && !restarts) {
    const reason = otherImport(state, place, { collection, definition, file: mark });
    if (reason === undefined) return present(app, state, stateFile, signal);
    throw new Failure(`An import of ${file} has begun, and is another one: ${reason}`, {
      nextStep: `--restart forgets it and begins anew; what it has stored stays. It is noted in ${stateFile}.`,
    });
  }
  if (state?.app === app.id && state.url === url) await forgetImport(app, state.importId, signal);
  const sizeBytes = kindOf(file).isGzip ? undefined : mark.sizeBytes;
  const report = await begin(app, collection, definition, sizeBytes, signal);
  const begun: ImportState = { version: 1, ...place, collection, importId: report.import_id, file: mark, definition };
  await writeState(stateFile, begun).catch((error: Error) => onUnresumable(`${stateFile}: ${error.message}`));
  return report;
}

async function present(app: App, { importId }: ImportState, stateFile: string, signal: AbortSignal) {
  try {
    return await app.request<ImportReport>('GET', pathOf(app, importId), { signal });
  } catch (error) {
    if (!isGranaryError(error) || error.code !== 'IMPORT_NOT_FOUND') throw error;
    throw new Failure(`The service has forgotten the import that ${stateFile} names: it is kept for 7 days`, {
      nextStep: '--restart begins anew; what was stored stays.',
    });
  }
}

function begin(
  app: App,
  collection: string,
  definition: ImportDefinition,
  sizeBytes: number | undefined,
  signal: AbortSignal,
): Promise<ImportReport> {
  const json = { ...definition, collection, size_bytes: sizeBytes };
  return app.request('POST', apiPath('apps', app.id, 'imports'), { json, signal });
}

/** Ends an import; what it has stored stays. */
export async function forgetImport(app: App, importId: string, signal: AbortSignal): Promise<void> {
  await app.request('DELETE', pathOf(app, importId), { signal }).catch((error: unknown) => {
    if (!isGranaryError(error) || error.code !== 'IMPORT_NOT_FOUND') throw error;
  });
}

/** The same once the command is ended, which waits for that a moment only. */
async function dropImport(app: App, importId: string): Promise<void> {
  await forgetImport(app, importId, AbortSignal.timeout(dropTimeoutMs)).catch(() => {});
}

const pathOf = (app: App, importId: string): string => apiPath('apps', app.id, 'imports', importId);

async function sendFile(file: string, mark: FileMark, report: ImportReport, call: ImportCall): Promise<ImportReport> {
  const isGzip = kindOf(file).isGzip;
  // A compressed file is read from its beginning, another one where it is not stored yet.
  const start = isGzip ? 0 : report.offset;
  let bytesRead = 0;
  const source = isGzip ? unzipped(file, (bytes) => (bytesRead += bytes)) : fileBytes(file, start);
  const onProgress: ImportCall['onProgress'] = ({ report: each }) => {
    const bytes = isGzip ? bytesRead : each.offset;
    call.onProgress({ report: each, bytes, totalBytes: mark.sizeBytes });
  };
  const sent = await send(report, source, start, { ...call, onProgress });
  const { sizeBytes, modifiedMs } = await markOf(file);
  if (sizeBytes === mark.sizeBytes && modifiedMs === mark.modifiedMs) return sent;
  throw new Failure(`${file} was changed while it was imported: what is stored may be of both`, {
    nextStep: 'Import it again.',
  });
}

function send(
  { import_id: importId, collection }: ImportReport,
  source: AsyncIterable<Uint8Array>,
  sourceStart: number,
  { app, signal, onProgress }: ImportCall,
): Promise<ImportReport> {
  return app.collection(collection).import(source, {
    importId,
    sourceStart,
    signal,
    onProgress: (report) => onProgress({ report, bytes: report.offset, totalBytes: undefined }),
  });
}

async function* unzipped(file: string, onRead: (bytes: number) => void): AsyncGenerator<Uint8Array> {
  const plain = createGunzip({ chunkSize: 256 * 1_024 });
  const compressed = async function* () {
    for await (const chunk of fileBytes(file)) {
      onRead(chunk.length);
      yield chunk;
    }
  };
  pipeline(compressed, plain, () => {});
  try {
    for await (const chunk of plain) yield chunk as Uint8Array;
  } catch (error) {
    if (error instanceof Failure) throw error;
    throw new Failure(`${file} cannot be unpacked: ${(error as Error).message}`);
  }
}

/** Throws Failure for an import that has failed before. */
function checkedReport(report: ImportReport): ImportReport {
  if (report.status !== 'failed') return report;
  throw new Failure(`The import has failed: ${report.error?.error ?? 'the service does not say why'}`);
}

/** Whether an import cannot go on, whatever the error of this call is. */
async function hasEnded(app: App, importId: string, error: unknown, signal: AbortSignal): Promise<boolean> {
  if (signal.aborted || isPassing(error)) return false;
  const report = await app.request<ImportReport>('GET', pathOf(app, importId), { signal }).catch(() => undefined);
  return report !== undefined && report.status !== 'open';
}

async function markOf(file: string): Promise<FileMark> {
  const unreadable = (error: Error) => {
    throw new UsageError(`${file} cannot be read: ${error.message}`);
  };
  const stats = await stat(file).catch(unreadable);
  if (!stats.isFile()) throw new UsageError(`${file} is not a file`, 'A pipe is read by the name - as stdin.');
  await access(file, constants.R_OK).catch(unreadable);
  return { sizeBytes: stats.size, modifiedMs: stats.mtimeMs };
}
