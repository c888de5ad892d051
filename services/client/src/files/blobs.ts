import { appPath, type AppContext } from '../http/app-context.ts';
import type { CallOptions, WriteOptions } from '../http/transport.ts';
import { fetchWithProgress, type ProgressListener } from './progress.ts';

export interface UploadOptions extends WriteOptions {
  /** The id of the file, a UUID that the collection has no file or document under; by default the service makes one. */
  id?: string | undefined;
  /** The content type; by default that of the file, else `application/octet-stream`. */
  contentType?: string | undefined;
  /** Members of the document that describes the file; a text is their JSON. */
  metadata?: Record<string, unknown> | string | undefined;
  onProgress?: ProgressListener | undefined;
}

export interface UploadedBlob {
  blob_id: string;
  ticket_id: string;
  status: string;
  message: string;
}

export interface DownloadOptions extends CallOptions {
  /** A part of the file: its first byte, and the one behind its last. */
  start?: number | undefined;
  end?: number | undefined;
}

/** Time for an upload or the beginning of a download. */
const uploadTimeoutMs = 3_600_000;

/** The files of a collection. */
export class Blobs {
  private readonly context: AppContext;
  private readonly collection: string;

  constructor(context: AppContext, collection: string) {
    this.context = context;
    this.collection = collection;
  }

  /** Stores a file. An upload that breaks off is sent again; it is stored once. */
  async upload(file: Blob | Uint8Array | string, options: UploadOptions = {}): Promise<UploadedBlob> {
    const { id, contentType, metadata, onProgress, ...rest } = options;
    const blob = file instanceof Blob ? file : new Blob([file as BlobPart]);
    const { transport } = this.context;
    const sender = onProgress
      ? transport.withFetch(fetchWithProgress(transport.settings.fetch, onProgress))
      : transport;
    return sender.json({
      timeoutMs: uploadTimeoutMs,
      ...rest,
      ...(id === undefined
        ? { method: 'POST', path: appPath(this.context, 'blobs', this.collection) }
        : { method: 'PUT', path: this.path(id) }),
      headers: {
        'Content-Type': contentType ?? (blob.type || 'application/octet-stream'),
        'X-Blob-Metadata': metadata && headerText(typeof metadata === 'string' ? metadata : JSON.stringify(metadata)),
      },
      body: () => blob,
    });
  }

  /** The answer with the file, whose body is still to be read: `await (await download(id)).blob()`. */
  async download(blobId: string, { start, end, ...options }: DownloadOptions = {}): Promise<Response> {
    const range = start === undefined && end === undefined ? undefined : `bytes=${start ?? 0}-${end ? end - 1 : ''}`;
    const { response } = await this.context.transport.open({
      ...options,
      method: 'GET',
      path: this.path(blobId),
      headers: { Range: range },
      // The file may be with an object store.
      mayRedirect: true,
    });
    return response;
  }

  /** The address at which everybody may read the file, if its collection is public. */
  url(blobId: string): string {
    return `${this.context.transport.settings.url}${this.path(blobId)}`;
  }

  async delete(blobId: string, options: WriteOptions = {}): Promise<UploadedBlob & { celestia_height: number }> {
    return this.context.transport.json({ ...options, method: 'DELETE', path: this.path(blobId) });
  }

  private path(blobId: string): string {
    return appPath(this.context, 'blobs', this.collection, blobId);
  }
}

/** JSON in ASCII alone, for headers have no other characters in every client. */
const headerText = (json: string): string =>
  // Between members such characters mean nothing, and within a text they stand as escapes.
  json
    .replace(/[\t\r\n]+/g, ' ')
    .replace(/[^\x20-\x7e]/g, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
