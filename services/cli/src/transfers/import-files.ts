import { randomUUID } from 'node:crypto';
import { openAsBlob } from 'node:fs';
import type { App } from '@granary/client';
import { Failure, isGranaryError } from '../failure.ts';
import { apiPath } from '../session/paths.ts';
import { metadataOf, pathOfFile, sortedDocuments, type ListedFile } from './app-files.ts';
import type { CollectionFacts } from './app-manifest.ts';
import { readIfThere } from './app-reads.ts';

export interface FilesImportCall {
  app: App;
  signal: AbortSignal;
  /** Files that an earlier call has stored. */
  done: number;
  onProgress: (done: number) => void;
  /** Is told of each file that is stored, or was there already as it is. */
  onStored: (done: number) => Promise<void>;
  /** Is told of a file whose id has another file or document, which stays. */
  onTaken: (file: ListedFile, error: Error) => void;
}

/**
 * Stores the files of a collection under their ids, with the metadata of the documents that describe them. Throws
 * Failure, GranaryError, what `onTaken` throws, and the reason of the signal.
 */
export async function importFiles(folder: string, facts: CollectionFacts, call: FilesImportCall): Promise<void> {
  const { uploads, name: collection } = facts;
  if (!uploads) return;
  let place = 0;
  for await (const { described } of sortedDocuments(folder, facts)) {
    for (const { document, file } of described) {
      place += 1;
      if (place <= call.done) continue;
      call.signal.throwIfAborted();
      call.onProgress(place - 1);
      await storeFile(pathOfFile(folder, uploads.file, file.blob_id), { collection, document, file }, call);
      await call.onStored(place);
    }
  }
}

interface MovedFile {
  collection: string;
  document: string;
  file: ListedFile;
}

async function storeFile(path: string, { collection, document, file }: MovedFile, call: FilesImportCall) {
  const { app, signal } = call;
  const bytes = await openAsBlob(path).catch((error: Error) => {
    throw new Failure(`${path} cannot be read: ${error.message}`);
  });
  const { body, ...options } = uploadOf(bytes, file, metadataOf(document));
  try {
    await app.blobs(collection).upload(body, { ...options, id: file.blob_id, signal });
  } catch (error) {
    if (!isGranaryError(error) || error.code !== 'ALREADY_EXISTS') throw error;
    if (!(await isThere(app, collection, file, signal))) call.onTaken(file, error);
  }
}

/** Whether the app has the file already, as it is, from a call that broke off. */
async function isThere(app: App, collection: string, file: ListedFile, signal: AbortSignal): Promise<boolean> {
  const path = apiPath('apps', app.id, 'collections', collection, 'documents', file.blob_id);
  const document = await readIfThere<Record<string, unknown>>(app, path, signal);
  if (document?.['sha256'] !== file.sha256 || document['blob_id'] !== file.blob_id) return false;
  try {
    await (await app.blobs(collection).download(file.blob_id, { signal })).body?.cancel();
    return true;
  } catch (error) {
    if (isGranaryError(error) && error.code === 'BLOB_NOT_FOUND') return false;
    throw error;
  }
}

/** Characters of metadata in a header: the service takes 16 KiB of all headers. */
const headerLengthMax = 8_000;

/**
 * The body of an upload. A form keeps the name of a file, and metadata of any length, but of its content type neither
 * parameters nor upper case: those are of an upload without a form, which has no name.
 */
function uploadOf(bytes: Blob, { content_type: contentType, filename }: ListedFile, metadata: string) {
  const isKeptByForm = /^[^;A-Z]+$/.test(contentType);
  if (filename === null && !isKeptByForm && metadata.length <= headerLengthMax)
    return { body: bytes, contentType, metadata };
  const boundary = `granary-${randomUUID()}`;
  const name = filename === null ? '' : `; filename*=UTF-8''${encodedName(filename)}`;
  const head =
    `--${boundary}\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n${metadata}\r\n` +
    `--${boundary}\r\nContent-Disposition: form-data; name="blob"${name}\r\nContent-Type: ${contentType}\r\n\r\n`;
  return {
    body: new Blob([head, bytes, `\r\n--${boundary}--\r\n`]),
    contentType: `multipart/form-data; boundary=${boundary}`,
  };
}

/** A name as RFC 8187 writes it. */
const encodedName = (name: string): string =>
  encodeURIComponent(name).replace(/['()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
