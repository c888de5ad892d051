import type { IncomingMessage, ServerResponse } from 'node:http';
import { ServiceError } from '@granary/shared/errors';
import type { Bodies, IncomingBody } from '../admission/bodies';
import type { ClientKeys } from '../admission/client-budget';
import { overloaded, tooLarge, unsupportedMediaType } from '../errors/problem';

export interface BodyOptions {
  limitBytes: number;
  bodies: Bodies;
  /** The client whose limits the body counts against. */
  keys: ClientKeys;
}

/** A body that has arrived, to be released when its bytes are no longer needed. */
export interface ReceivedBody {
  bytes: Buffer;
  release: () => void;
}

/**
 * Reads a whole body. Its bytes are charged to the memory as they come. Throws PAYLOAD_TOO_LARGE, OVERLOADED,
 * REQUEST_TIMEOUT, UNSUPPORTED_MEDIA_TYPE (compressed); CANCELLED when the client has disconnected.
 */
export async function readBody(
  request: IncomingMessage,
  response: ServerResponse,
  { limitBytes, bodies, keys }: BodyOptions,
): Promise<ReceivedBody> {
  const encoding = request.headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity') throw compressed();
  const length = request.headers['content-length'];
  const announcedBytes = length === undefined ? undefined : Number(length);
  if ((announcedBytes ?? 0) > limitBytes) throw tooLarge(limitBytes);
  if (response.destroyed) throw clientDisconnected();
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    let isOver = false;
    const fail = (error: Error) => {
      if (isOver) return;
      isOver = true;
      request.off('data', onData);
      body.release();
      reject(error);
    };
    const body: IncomingBody = bodies.begin(keys, announcedBytes, fail);
    const onData = (chunk: Buffer) => {
      if (size + chunk.length > limitBytes) return fail(tooLarge(limitBytes));
      if (!body.add(chunk.length)) return fail(overloaded());
      size += chunk.length;
      chunks.push(chunk);
    };
    // An error costs more to create than the rest of this function, so it is created only where it is used.
    const onGone = () => {
      if (!isOver) fail(clientDisconnected());
    };
    continueIfExpected(request, response);
    response.once('close', onGone);
    request
      .on('data', onData)
      .on('end', () => {
        if (isOver) return;
        isOver = true;
        body.end();
        const bytes = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, size);
        resolve({ bytes, release: () => body.release() });
      })
      .on('error', onGone)
      .on('close', onGone);
  });
}

/** Bytes of an unused body that are still read, so that its sender receives the answer. */
const discardedBytesMax = 8 * 1024 * 1024;
const discardTimeoutMs = 10_000;

/**
 * Must be called before a request is answered whose body may not have been read. Reads and discards the rest of it, and
 * closes the connection when that is too much or takes too long.
 */
export function discardUnreadBody(request: IncomingMessage, response: ServerResponse): void {
  // Without 100 Continue the client may send the body or not, so the start of its next request is unknown.
  if (waitsForContinue.delete(request)) response.setHeader('Connection', 'close');
  if (request.complete || request.destroyed) return;
  const { socket } = request;
  const timer = setTimeout(() => socket.destroy(), discardTimeoutMs);
  // A request that is answered emits no event when its connection is closed.
  const done = () => {
    clearTimeout(timer);
    socket.off('close', done);
  };
  socket.once('close', done);
  let size = 0;
  request.on('error', () => {}).on('end', done);
  request.on('data', (chunk: Buffer) => {
    size += chunk.length;
    if (size > discardedBytesMax) socket.destroy();
  });
  request.resume();
}

const waitsForContinue = new WeakSet<IncomingMessage>();

/** Marks a request with `Expect: 100-continue`: it is answered with 100 once its body is read. */
export function markExpectsContinue(request: IncomingMessage): void {
  waitsForContinue.add(request);
}

export function continueIfExpected(request: IncomingMessage, response: ServerResponse): void {
  if (waitsForContinue.delete(request)) response.writeContinue();
}

/** Whether the request announces a body. */
export function hasBody(request: IncomingMessage): boolean {
  return request.headers['transfer-encoding'] !== undefined || Number(request.headers['content-length'] ?? 0) > 0;
}

/** The media type of a request in lower case, undefined when it names none. Throws for a charset other than UTF-8. */
export function mediaType(request: IncomingMessage, expected: readonly string[]): string | undefined {
  const header = request.headers['content-type'];
  if (header === undefined || header === '') return undefined;
  const [type = '', ...parameters] = header.toLowerCase().split(';');
  for (const parameter of parameters) {
    const [name = '', value = ''] = parameter.split('=');
    if (name.trim() === 'charset' && value.trim().replaceAll('"', '') !== 'utf-8') throw unsupportedMediaType(expected);
  }
  return type.trim();
}

export function clientDisconnected(): ServiceError {
  return new ServiceError('CANCELLED', 'CANCELLED', 'The client has disconnected');
}

function compressed(): ServiceError {
  return new ServiceError('INVALID_ARGUMENT', 'UNSUPPORTED_MEDIA_TYPE', 'The body must be sent without compression');
}
