import { createHash, randomUUID } from 'node:crypto';
import { openAsBlob } from 'node:fs';
import type { App } from '@granary/client';
import { Failure, isGranaryError } from '../failure.ts';
import { metadataOf, pathOfFile, sortedDocuments, type ListedFile } from './app-files.ts';
import type { CollectionFacts } from './app-manifest.ts';

export interface FilesImportCall {
  app: App;
  signal: AbortSignal;
  /** Files that an earlier call has handled. */
  done: number;
  onProgress: (done: number) => void;
  /** Is told how many files are handled: each is stored, was there already as it is, or is not to be stored. */
  onHandled: (done: number) => Promise<void>;
  /** Is told of a file that is not stored: its id is taken, or the app cannot take it or its document. */
  onRefused: (file: ListedFile, reason: 'taken' | 'refused', error: Error) => void;
}

/** Most files are small, and wait for commits more than for bytes. */
const filesAtOnce = 4;

/**
 * Stores the files of a collection under their ids, with the metadata of the documents that describe them. Throws
 * Failure, GranaryError, what `onRefused` throws, and the reason of the signal.
 */
export async function importFiles(folder: string, facts: CollectionFacts, call: FilesImportCall): Promise<void> {
  const { uploads, name: collection } = facts;
  if (!uploads) return;
  let place = 0;
  for await (const { described } of sortedDocuments(folder, facts)) {
    const rest = described.slice(Math.max(0, call.done - place));
    place += described.length - rest.length;
    for (let start = 0; start < rest.length; start += filesAtOnce) {
      call.signal.throwIfAborted();
      call.onProgress(place);
      const files = rest.slice(start, start + filesAtOnce);
      const stored = await Promise.allSettled(
        files.map(({ document, file }) =>
          storeFile(pathOfFile(folder, uploads.file, file.blob_id), { collection, document, file }, call),
        ),
      );
      const failed = stored.find((result) => result.status === 'rejected');
      if (failed) throw failed.reason;
      place += files.length;
      await call.onHandled(place);
    }
  }
}

interface MovedFile {
  collection: string;
  document: string;
  file: ListedFile;
}

async function storeFile(path: string, moved: MovedFile, call: FilesImportCall): Promise<void> {
  const { app, signal } = call;
  const { file, collection } = moved;
  const metadata = metadataOf(moved.document);
  const upload = uploadOf(await bytesOf(path, file), file, metadata);
  try {
    await app.blobs(collection).upload(upload.body, { ...upload.options, id: file.blob_id, signal });
  } catch (error) {
    const reason = isGranaryError(error) ? refusalOf(error.status, error.code) : undefined;
    if (reason === undefined) throw error;
    if (reason === 'refused' || !(await isThere(app, moved, signal)))
      return call.onRefused(file, reason, error as Error);
  }
  if (!upload.carriesMetadata) await addMetadata(app, moved, metadata, signal);
}

/** Undefined for an error that is not about the file: the next attempt may succeed. */
function refusalOf(status: number, code: string): 'taken' | 'refused' | undefined {
  if (code === 'ALREADY_EXISTS') return 'taken';
  return status === 413 || status === 422 || code === 'UNIQUE_VIOLATION' ? 'refused' : undefined;
}

/** The bytes of a file of the folder. Those that are uploaded are these: where the file is changed the upload fails. */
async function bytesOf(path: string, { sha256 }: ListedFile): Promise<Blob> {
  try {
    const bytes = await openAsBlob(path);
    const hash = createHash('sha256');
    for await (const chunk of bytes.stream()) hash.update(chunk as Uint8Array);
    if (hash.digest('hex') === sha256) return bytes;
  } catch (error) {
    throw new Failure(`${path} cannot be read: ${(error as Error).message}`);
  }
  throw new Failure(`${path} was changed since the import has begun`);
}

/** Whether the app has the file already, as it is, from a call that broke off. */
async function isThere(app: App, { collection, file }: MovedFile, signal: AbortSignal): Promise<boolean> {
  const document = await app.collection(collection).get(file.blob_id, { signal });
  if (document?.['sha256'] !== file.sha256 || document['blob_id'] !== file.blob_id) return false;
  try {
    await (await app.blobs(collection).download(file.blob_id, { signal })).body?.cancel();
    return true;
  } catch (error) {
    if (isGranaryError(error) && error.code === 'BLOB_NOT_FOUND') return false;
    throw error;
  }
}

/** Gives the document of a file the metadata that its upload could not carry, unless it has some. */
async function addMetadata(app: App, { collection, file }: MovedFile, metadata: string, signal: AbortSignal) {
  const documents = app.collection(collection);
  const present = await documents.getVersioned(file.blob_id, { signal });
  if (!present) return;
  const text = JSON.stringify(present.document);
  if (metadataOf(text) !== '{}') return;
  const jsonText = `${text.slice(0, -1)},${metadata.slice(1)}`;
  await documents.put({ id: file.blob_id }, { jsonText, ifVersion: present.version, signal });
}

/** Characters of metadata in a header, where others are escapes of six: the service takes 16 KiB of all headers. */
const headerLengthMax = 8_000;
/** Bytes of metadata that the service takes in a form. */
const formMetadataBytesMax = 64 * 1_024;

/**
 * The body of an upload. A form keeps the name of a file, and more metadata, but of its content type neither parameters
 * nor upper case: those are of an upload without a form, which has no name.
 */
function uploadOf(bytes: Blob, { content_type: contentType, filename }: ListedFile, metadata: string) {
  if (filename === null && !/^[^;A-Z]+$/.test(contentType)) {
    const carriesMetadata = metadata.replace(/[^ -~]/g, '\\u0000').length <= headerLengthMax;
    return {
      body: bytes,
      options: { contentType, metadata: carriesMetadata ? metadata : undefined },
      carriesMetadata,
    };
  }
  const carriesMetadata = Buffer.byteLength(metadata) <= formMetadataBytesMax;
  const boundary = `granary-${randomUUID()}`;
  const name = filename === null ? '' : `; filename*=UTF-8''${encodedName(filename)}`;
  const head =
    `--${boundary}\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n${carriesMetadata ? metadata : '{}'}\r\n` +
    `--${boundary}\r\nContent-Disposition: form-data; name="blob"${name}\r\nContent-Type: ${contentType}\r\n\r\n`;
  return {
    body: new Blob([head, bytes, `\r\n--${boundary}--\r\n`]),
    options: { contentType: `multipart/form-data; boundary=${boundary}` },
    carriesMetadata,
  };
}

/** A name as RFC 8187 writes it. */
const encodedName = (name: string): string =>
  encodeURIComponent(name).replace(/['()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
