import type { IncomingMessage } from 'node:http';
import type { EventEmitter } from 'node:events';
import type { Readable } from 'node:stream';
import { Busboy, type BusboyHeaders } from '@fastify/busboy';
import { invalid, ServiceError } from '@granary/shared/errors';
import { headerText } from '@granary/shared/http/header-text';
import type { ObjectStore, ReceivedObject } from '../stores/store';

/** Bytes of the JSON text of a blob's own metadata. */
export const metadataMaxBytes = 64 * 1024;
/** Bytes of a form besides file and metadata: boundaries, headers of parts, a preamble. */
export const formOverheadBytes = 64 * 1024;

const partHeaderMaxBytes = 16 * 1024;
type Form = InstanceType<typeof Busboy>;

const partBufferBytes = 256 * 1024;

/** An upload whose bytes are in the store but not referenced yet. */
export interface ReceivedUpload {
  object: ReceivedObject;
  contentType: string;
  filename: string | null;
  /** JSON text as received; empty when there was none. */
  metadata: Buffer;
}

export function tooLarge(what: string, maxBytes: number, part: string): ServiceError {
  const message = `${what} may have at most ${maxBytes} bytes`;
  return new ServiceError('RESOURCE_EXHAUSTED', 'PAYLOAD_TOO_LARGE', message, {
    details: { [part]: [`is larger than ${maxBytes} bytes`], limit_bytes: maxBytes },
  });
}

export function clientGone(): ServiceError {
  return new ServiceError('CANCELLED', 'CANCELLED', 'The client closed the connection');
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

/** Ending the iteration early neither destroys the stream nor raises an error. */
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
  const metadata = Buffer.from(typeof header === 'string' ? headerText(header) : '');
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
 * is streamed into the store while the form is parsed. On an error the stored bytes are discarded before it is thrown.
 */
export async function receiveForm(
  request: IncomingMessage,
  store: ObjectStore,
  maxBytes: number,
): Promise<ReceivedUpload> {
  const form = openForm(request);
  const parts = new FormParts(store, maxBytes);
  try {
    await parsed(request, form, parts, maxBytes);
    return await parts.received();
  } catch (error) {
    request.unpipe(form);
    const isParseError = error instanceof Error && !(error instanceof ServiceError) && !('code' in error);
    const refused = isParseError ? malformed() : error;
    await parts.discard(refused as Error);
    throw refused;
  }
}

/** The parts of one form: the file, which goes to the store as it arrives, and the metadata. */
class FormParts {
  private object: Promise<ReceivedObject> | undefined;
  private metadata: Promise<Buffer> | undefined;
  private stream: Readable | undefined;
  private contentType = '';
  private filename: string | null = null;

  constructor(
    private readonly store: ObjectStore,
    private readonly maxBytes: number,
  ) {}

  /** Begins to read a part. Its failure is passed to `reject`, and so is a part that is not expected. */
  add(
    name: string,
    stream: Readable,
    filename: string | undefined,
    type: string,
    reject: (error: unknown) => void,
  ): void {
    // The reader of the part sees its errors while it reads; this listener sees those before and after.
    stream.on('error', reject);
    this.stream = stream;
    if (name === 'blob' && !this.object) {
      this.contentType = type;
      this.filename = filename ?? null;
      this.object = this.store.receive(limited(chunksOf(stream), this.maxBytes));
      this.object.catch(reject);
    } else if (name === 'metadata' && !this.metadata) {
      this.metadata = collect(chunksOf(stream));
      this.metadata.catch(reject);
    } else {
      const isKnown = name === 'blob' || name === 'metadata';
      const rule = 'the file must be in a part called blob, its metadata in one called metadata';
      const message = isKnown ? 'is given more than once' : `is not a part of an upload: ${rule}`;
      reject(invalid('The form has a part that does not belong there', { [name ?? '(unnamed)']: [message] }));
      stream.resume();
    }
  }

  async received(): Promise<ReceivedUpload> {
    const [object, metadata = Buffer.alloc(0)] = await Promise.all([this.object, this.metadata]);
    if (!object) {
      const parts = this.metadata ? 'only the part metadata' : 'no parts';
      throw invalid('The upload has no file', {
        blob: [`is missing: the file must be in a part called blob, and the form has ${parts}`],
      });
    }
    return { object, contentType: this.contentType, filename: this.filename, metadata };
  }

  async discard(error: Error): Promise<void> {
    this.stream?.destroy(error);
    await Promise.allSettled([this.metadata, this.object?.then((object) => object.discard())]);
  }
}

/** Resolves when the form has ended; rejects at the first error of the form, of a part or of the connection. */
function parsed(request: IncomingMessage, form: Form, parts: FormParts, maxBytes: number): Promise<void> {
  return new Promise<void>((resolve, reject) => {
    let seenBytes = 0;
    form.on('file', (name, stream, filename, _encoding, type) => parts.add(name, stream, filename, type, reject));
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
}

function openForm(request: IncomingMessage): Form {
  try {
    const form = new Busboy({
      headers: request.headers as BusboyHeaders,
      isPartAFile: () => true,
      fileHwm: partBufferBytes,
      limits: { headerPairs: 32, headerSize: partHeaderMaxBytes },
    });
    readPartHeadersAsText(form);
    return form;
  } catch {
    throw malformed();
  }
}

/**
 * Busboy reads the headers of parts as UTF-8, and replaces each byte that is not, so a name in Latin-1 would be lost.
 * Before it reads them they become UTF-8. It has no option for that, and keeps its parser in a member that it does not
 * declare.
 */
function readPartHeadersAsText(form: Form): void {
  const { parser } = (form as unknown as { _parser: { parser: EventEmitter } })._parser;
  parser.prependListener('part', (part: EventEmitter) => {
    part.prependListener('header', (headers: Record<string, string[]>) => {
      for (const name in headers) headers[name] = headers[name]!.map((value) => utf8Bytes(headerText(value)));
    });
  });
}

/** The bytes of a text in UTF-8, one in each character, as parsers of headers pass them on. */
const utf8Bytes = (text: string): string => Buffer.from(text).toString('latin1');

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
