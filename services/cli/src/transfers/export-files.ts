import { createHash } from 'node:crypto';
import { mkdir, open, rename, rm, type FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { App } from '@granary/client';
import { Failure, isGranaryError, isPassing } from '../failure.ts';
import { apiPath } from '../session/paths.ts';
import { describesBlob, linesOf, listFileOf, pathOfFile, recordsOf, type ListedFile } from './app-files.ts';
import { readIfThere } from './app-reads.ts';
import { BrokenOff, pauseAfter } from './passing.ts';
import { partOf } from './part-file.ts';

/** How far the files of a collection are fetched. */
export interface FilesProgress {
  /** Documents that were looked at. */
  documents: number;
  /** Bytes of the list so far. */
  listBytes: number;
  count: number;
  documentBytes: number;
  /** Files that were deleted or replaced since the height of the export. */
  deleted: number;
  /** Documents that look as if they described a file, of which the service has none. */
  absent: number;
}

export const noFilesYet: FilesProgress = {
  documents: 0,
  listBytes: 0,
  count: 0,
  documentBytes: 0,
  deleted: 0,
  absent: 0,
};

export interface FilesCall {
  app: App;
  signal: AbortSignal;
  /** Is told the files that are there, and the bytes that have come since the call. */
  onProgress: (progress: { files: number; bytes: number }) => void;
  /** Stores how far it is, so that another call goes on there. */
  save: (progress: FilesProgress) => Promise<void>;
}

/** Attempts of a file without a byte that came. */
const attemptsInVain = 12;

/**
 * Fetches the files that the documents of a collection describe, and lists them. A document that looks like the
 * description of one, of which the service has no file, is a plain document. What is there is not fetched again.
 * Throws Failure, GranaryError, and the reason of the signal.
 */
export async function exportFiles(
  folder: string,
  { collection, documentsFile }: { collection: string; documentsFile: string },
  before: FilesProgress,
  call: FilesCall,
): Promise<FilesProgress> {
  const list = listFileOf(documentsFile);
  await mkdir(dirname(pathOfFile(folder, list, '-')), { recursive: true });
  const listing = await open(join(folder, list), 'a+');
  const progress = { ...before };
  let [seen, bytes] = [0, 0];
  try {
    await listing.truncate(before.listBytes);
    for await (const records of recordsOf(join(folder, documentsFile))) {
      for (const line of linesOf(records)) {
        seen += 1;
        if (seen <= before.documents || !describesBlob(line)) continue;
        const { id, sha256 } = JSON.parse(line) as { id: string; sha256: string };
        const file = await fetched(pathOfFile(folder, list, id), { collection, id, sha256 }, call, (more) => {
          bytes += more;
          call.onProgress({ files: progress.count, bytes });
        });
        if (file === 'replaced') progress.deleted += 1;
        else if (file) {
          const entry = `${JSON.stringify(file)}\n`;
          await listing.appendFile(entry);
          progress.listBytes += Buffer.byteLength(entry);
          progress.documentBytes += Buffer.byteLength(line) + 1;
          progress.count += 1;
        } else if (await isDeleted(collection, id, call)) progress.deleted += 1;
        else progress.absent += 1;
        progress.documents = seen;
        await listing.datasync();
        await call.save(progress);
      }
    }
    return progress;
  } finally {
    await listing.close();
  }
}

/** Whether the document of a file is deleted now, which it was not at the height of the export. */
async function isDeleted(collection: string, id: string, { app, signal }: FilesCall): Promise<boolean> {
  const path = apiPath('apps', app.id, 'collections', collection, 'documents', id);
  const document = await readIfThere<{ deleted?: boolean }>(app, path, signal);
  return document === undefined || document.deleted === true;
}

/** Whether the document of a file names another hash now. */
async function isReplaced({ collection, id, sha256 }: WantedFile, app: App, signal: AbortSignal): Promise<boolean> {
  const document = await app.collection(collection).get(id, { signal });
  return document?.['sha256'] !== sha256;
}

interface WantedFile {
  collection: string;
  id: string;
  /** As the document has it. */
  sha256: string;
}

/**
 * Fetches a file to a path; undefined where the service has none, and `replaced` where it has another one than the
 * document says. A download that breaks off goes on.
 */
async function fetched(
  path: string,
  { collection, id, sha256 }: WantedFile,
  { app, signal }: FilesCall,
  onBytes: (more: number) => void,
): Promise<ListedFile | 'replaced' | undefined> {
  const part = await open(partOf(path), 'w');
  const hash = createHash('sha256');
  let [received, attempts] = [0, 0];
  try {
    for (;;) {
      const start = received;
      try {
        const response = await app.blobs(collection).download(id, { signal, start: start === 0 ? undefined : start });
        if ((hashOf(response) ?? sha256) !== sha256) {
          await response.body?.cancel();
          return 'replaced';
        }
        for await (const chunk of chunksOf(response)) {
          await writeAll(part, chunk);
          hash.update(chunk);
          received += chunk.length;
          onBytes(chunk.length);
        }
        const file = { blob_id: id, ...describedBy(response), size_bytes: received, sha256: hash.digest('hex') };
        if (file.sha256 !== sha256) {
          if (hashOf(response) === undefined && (await isReplaced({ collection, id, sha256 }, app, signal)))
            return 'replaced';
          throw new Failure(`The file ${id} of "${collection}" was changed on its way`);
        }
        await part.datasync();
        await part.close();
        await rename(partOf(path), path);
        return file;
      } catch (error) {
        signal.throwIfAborted();
        if (isGranaryError(error) && error.code === 'BLOB_NOT_FOUND') return undefined;
        if (!isPassing(error)) throw error;
        attempts = received > start ? 1 : attempts + 1;
        if (attempts >= attemptsInVain) throw error;
        await pauseAfter(attempts, signal);
      }
    }
  } finally {
    // It is closed already where the file has its name.
    await part.close().catch(() => {});
    await rm(partOf(path), { force: true });
  }
}

/** The hash that the service has of a file; an object store that is asked itself has another ETag. */
const hashOf = ({ headers }: Response): string | undefined => /^"([0-9a-f]{64})"$/.exec(headers.get('etag') ?? '')?.[1];

/** The bytes of an answer. Throws BrokenOff where they end early. */
async function* chunksOf(response: Response): AsyncGenerator<Uint8Array, void, undefined> {
  const expected = Number(response.headers.get('content-length') ?? 0);
  let received = 0;
  try {
    for await (const chunk of response.body ?? []) {
      received += (chunk as Uint8Array).length;
      yield chunk;
    }
  } catch (error) {
    // Nothing is missing, and the next attempt would begin behind the end.
    if (expected > 0 && received >= expected) return;
    throw new BrokenOff((error as Error).message);
  }
  if (received < expected) throw new BrokenOff(`${received} of ${expected} bytes have come`);
}

async function writeAll(file: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let written = 0; written < bytes.length;) written += (await file.write(bytes, written)).bytesWritten;
}

/** The content type of a file, and its name, as the head of a download tells them. */
export function describedBy({ headers }: Pick<Response, 'headers'>): Pick<ListedFile, 'content_type' | 'filename'> {
  const disposition = headers.get('content-disposition') ?? '';
  const exact = /; filename\*=UTF-8''([^;]+)$/.exec(disposition)?.[1];
  const plain = /; filename="([^"]*)"/.exec(disposition)?.[1];
  const filename = exact === undefined ? (plain ?? null) : decodeURIComponent(exact);
  return { content_type: headers.get('content-type') ?? 'application/octet-stream', filename };
}
