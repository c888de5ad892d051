import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { Busboy, type BusboyHeaders } from '@fastify/busboy';
import { invalid, ServiceError } from '@granary/shared/errors';
import type { ObjectStore, ReceivedObject } from '@granary/shared/objects/store';

/** Bytes of the JSON text of a blob's own metadata. */
export const metadataMaxBytes = 64 * 1024;
/** What a form may hold beside file and metadata: boundaries, headers of parts, a preamble. */
export const formOverheadBytes = 64 * 1024;

const partHeaderMaxBytes = 16 * 1024;
const partBufferBytes = 256 * 1024;

/** An upload whose bytes are in the store, and are nobody's yet. */
export interface ReceivedUpload {
  object: ReceivedObject;
  contentType: string;
  filename: string | null;
  /** JSON text as it came, empty when there was none. */
  metadata: Buffer;
}

export function tooLarge(what: string, maxBytes: number, part: string): ServiceError {
  const message = `${what} may have at most ${maxBytes} bytes`;
  return new ServiceError('RESOURCE_EXHAUSTED', 'PAYLOAD_TOO_LARGE', message, {
    details: { [part]: [`is larger than ${maxBytes} bytes`], limit_bytes: maxBytes },
  });
}

export function clientGone(): ServiceError {
  return new ServiceError('CANCELLED', 'CANCELLED', 'The client went away');
}

/** Lets at most `maxBytes` through, and throws PAYLOAD_TOO_LARGE at the first byte beyond. */
export async function* limited(source: AsyncIterable<Buffer>, maxBytes: number): AsyncGenerator<Buffer> {
  let sizeBytes = 0;
  for await (const chunk of source) {
    sizeBytes += chunk.length;
    if (sizeBytes > maxBytes) throw tooLarge('A blob', maxBytes, 'blob');
    yield chunk;
  }
}

/** Reading it to a point and no further neither destroys the stream nor makes an error of its own. */
function chunksOf(stream: Readable): AsyncIterable<Buffer> {
  return stream.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
}

/** A body that is the file itself. The request is not destroyed when this fails, so that it can be answered. */
export async function receiveRaw(
  request: IncomingMessage,
  store: ObjectStore,
  maxBytes: number,
): Promise<ReceivedUpload> {
  const header = request.headers['x-blob-metadata'];
  // Header values come byte for byte as Latin-1; what the client wrote is UTF-8.
  const metadata = Buffer.from(typeof header === 'string' ? header : '', 'latin1');
  if (metadata.length > metadataMaxBytes) throw tooLarge('The metadata', metadataMaxBytes, 'metadata');
  const contentType = request.headers['content-type'];
  const hasBody =
    request.headers['transfer-encoding'] !== undefined || Number(request.headers['content-length'] ?? 0) > 0;
  if (!hasBody && contentType === undefined) throw invalid('The upload has no file', { blob: ['is missing'] });
  const object = await store.receive(limited(chunksOf(request), maxBytes)).catch((error: unknown) => {
    throw error instanceof ServiceError || request.complete || !request.destroyed ? error : clientGone();
  });
  return { object, contentType: contentType ?? '', filename: null, metadata };
}

/**
 * A multipart/form-data body: part `blob` is the file, the optional part `metadata` a JSON text, in any order. The file
 * flows into the store while the form is read. Whatever is wrong is thrown after what had been stored is discarded.
 */
export async function receiveForm(
  request: IncomingMessage,
  store: ObjectStore,
  maxBytes: number,
): Promise<ReceivedUpload> {
  const form = openForm(request);
  const parts: { object?: Promise<ReceivedObject>; metadata?: Promise<Buffer>; stream?: Readable } = {};
  let contentType = '';
  let filename: string | null = null;

  const read = new Promise<void>((resolve, reject) => {
    let seenBytes = 0;
    form.on('file', (name, stream, partFilename, _encoding, partType) => {
      // Whoever reads the part meets its errors; this listener is for those that come before or after.
      stream.on('error', reject);
      parts.stream = stream;
      if (name === 'blob' && !parts.object) {
        contentType = partType;
        filename = partFilename ?? null;
        parts.object = store.receive(limited(chunksOf(stream), maxBytes));
        parts.object.catch(reject);
      } else if (name === 'metadata' && !parts.metadata) {
        parts.metadata = collect(chunksOf(stream));
        parts.metadata.catch(reject);
      } else {
        const message =
          name === 'blob' || name === 'metadata' ? 'is given more than once' : 'is not a part of an upload';
        reject(invalid('The form has a part that does not belong there', { [name ?? '(unnamed)']: [message] }));
        stream.resume();
      }
    });
    form.on('finish', resolve);
    form.on('error', () => reject(malformed()));
    request.on('data', (chunk: Buffer) => {
      seenBytes += chunk.length;
      if (seenBytes > maxBytes + metadataMaxBytes + formOverheadBytes) reject(tooLarge('A blob', maxBytes, 'blob'));
    });
    request.on('error', () => reject(clientGone()));
    request.on('close', () => {
      if (!request.complete) reject(clientGone());
    });
    request.pipe(form);
  });

  try {
    await read;
    const [object, metadata] = await Promise.all([parts.object, parts.metadata]);
    if (!object) throw invalid('The upload has no file', { blob: ['is missing'] });
    return { object, contentType, filename, metadata: metadata ?? Buffer.alloc(0) };
  } catch (error) {
    request.unpipe(form);
    const refused =
      error instanceof Error && !(error instanceof ServiceError) && !('code' in error) ? malformed() : error;
    parts.stream?.destroy(refused as Error);
    await Promise.allSettled([parts.metadata, parts.object?.then((object) => object.discard())]);
    throw refused;
  }
}

function openForm(request: IncomingMessage): InstanceType<typeof Busboy> {
  try {
    return new Busboy({
      headers: request.headers as BusboyHeaders,
      isPartAFile: () => true,
      fileHwm: partBufferBytes,
      limits: { headerPairs: 32, headerSize: partHeaderMaxBytes },
    });
  } catch {
    throw malformed();
  }
}

function malformed(): ServiceError {
  return invalid('The multipart/form-data body is incomplete or malformed', {
    '': ['is incomplete or malformed'],
  });
}

async function collect(stream: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of stream) {
    sizeBytes += chunk.length;
    if (sizeBytes > metadataMaxBytes) throw tooLarge('The metadata', metadataMaxBytes, 'metadata');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
