import type { IncomingMessage, ServerResponse } from 'node:http';
import { ServiceError } from '@granary/shared/errors';
import { startWaiting, stopWaiting } from '@granary/shared/grpc/deadlines';
import { overloaded, tooLarge, unsupportedMediaType } from './problem';

/** Bytes that a process holds at once, for bodies of requests and large answers. */
export class Budget {
  private usedBytes = 0;

  constructor(private readonly limitBytes: number) {}

  /** Throws OVERLOADED when that much is not left. */
  take(bytes: number): void {
    if (this.usedBytes + bytes > this.limitBytes) throw overloaded();
    this.usedBytes += bytes;
  }

  give(bytes: number): void {
    this.usedBytes -= bytes;
  }

  counts(): { usedBytes: number; limitBytes: number } {
    return { usedBytes: this.usedBytes, limitBytes: this.limitBytes };
  }
}

export interface BodyLimits {
  limitBytes: number;
  timeoutMs: number;
  budget: Budget;
}

/**
 * Reads a whole body. The budget is charged as the bytes come and given back when the response is closed. Throws
 * PAYLOAD_TOO_LARGE, OVERLOADED, REQUEST_TIMEOUT, UNSUPPORTED_MEDIA_TYPE (compressed); CANCELLED when the client
 * has gone.
 */
export async function readBody(
  request: IncomingMessage,
  response: ServerResponse,
  { limitBytes, timeoutMs, budget }: BodyLimits,
): Promise<Buffer> {
  const encoding = request.headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity') throw compressed();
  if (Number(request.headers['content-length'] ?? 0) > limitBytes) throw tooLarge(limitBytes);
  if (response.destroyed) throw clientGone();
  continueIfExpected(request, response);
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    let ended = false;
    const end = (error?: Error) => {
      if (ended) return;
      ended = true;
      stopWaiting(waiting);
      if (error) {
        request.off('data', onData);
        reject(error);
      } else {
        resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, size));
      }
    };
    const onData = (chunk: Buffer) => {
      if (size + chunk.length > limitBytes) return end(tooLarge(limitBytes));
      try {
        budget.take(chunk.length);
      } catch (error) {
        return end(error as Error);
      }
      size += chunk.length;
      chunks.push(chunk);
    };
    // To make an error costs more than all the rest, so not every closed request gets one.
    const onGone = () => {
      if (!ended) end(clientGone());
    };
    const waiting = startWaiting(timeoutMs, () => end(bodyTimedOut()));
    response.once('close', () => {
      onGone();
      budget.give(size);
    });
    request
      .on('data', onData)
      .on('end', () => end())
      .on('error', onGone)
      .on('close', onGone);
  });
}

/** Bytes of a body that nobody wants that are still read, so that its sender gets to see the answer. */
const discardedBytesMax = 8 * 1024 * 1024;
const discardTimeoutMs = 10_000;

/**
 * To be called before a request is answered whose body may not have been read: reads on and forgets what comes, and
 * cuts the connection when it is too much.
 */
export function discardRest(request: IncomingMessage, response: ServerResponse): void {
  // A client that was never told to go on may send the body or not, so where the next request begins is unknown.
  if (waitsForContinue.delete(request)) response.setHeader('Connection', 'close');
  if (request.complete || request.destroyed) return;
  const { socket } = request;
  const timer = setTimeout(() => socket.destroy(), discardTimeoutMs);
  // Once it is answered, a request no longer hears that its connection is closed.
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

/** Remembers that the client sent `Expect: 100-continue`: it is told to go on once its body is wanted. */
export function expectsContinue(request: IncomingMessage): void {
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

export function clientGone(): ServiceError {
  return new ServiceError('CANCELLED', 'CANCELLED', 'The client has gone');
}

function compressed(): ServiceError {
  return new ServiceError('INVALID_ARGUMENT', 'UNSUPPORTED_MEDIA_TYPE', 'The body must be sent without compression');
}

function bodyTimedOut(): ServiceError {
  return new ServiceError('DEADLINE_EXCEEDED', 'REQUEST_TIMEOUT', 'The body of the request took too long to come');
}
