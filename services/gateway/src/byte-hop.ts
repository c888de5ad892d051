import { Agent, request as send, type ClientRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import { ServiceError, unavailable, type ErrorDetails, type StatusName } from '@granary/shared/errors';
import { grantErrorHeader, grantHeader, signGrant, type ReadGrant, type UploadGrant } from '@granary/shared/grant';
import type { Call } from '@granary/shared/grpc/types';
import { clientGone } from './body';

export interface ByteHopOptions {
  /** host:port of the internal HTTP listener of the blobs service. */
  address: string;
  /** Signs the grants. */
  secret: string;
  /** A transfer on which nothing moves for this long is cut. */
  idleTimeoutMs: number;
}

/** A grant only has to live until the transfer starts. */
const grantLifetimeMs = 30_000;
/** Shorter than the listener keeps an idle connection. */
const idleConnectionMs = 30_000;
const connectionsMax = 1_024;
const answerMaxBytes = 64 * 1024;

const uploadHeaders = ['content-type', 'content-length', 'content-encoding', 'x-blob-metadata'] as const;
const readHeaders = ['range', 'if-range', 'if-match', 'if-none-match'] as const;
const answerHeaders = [
  'content-type',
  'content-length',
  'content-range',
  'accept-ranges',
  'content-disposition',
  'etag',
  'cache-control',
  'x-content-type-options',
  'content-security-policy',
  'cross-origin-resource-policy',
] as const;

type HopHeaders = Record<string, string | string[]>;

/**
 * Moves the bytes of blobs between the sockets of clients and the blobs service over HTTP/1.1, at the pace of the
 * slower side; nothing is held but the buffers of the sockets. Errors of the service come out as it threw them.
 */
export class ByteHop {
  private readonly agent = new Agent({ keepAlive: true, maxSockets: connectionsMax, timeout: idleConnectionMs });
  private readonly host: string;
  private readonly port: number;

  constructor(private readonly options: ByteHopOptions) {
    const colon = options.address.lastIndexOf(':');
    this.host = options.address.slice(0, colon);
    this.port = Number(options.address.slice(colon + 1));
  }

  close(): void {
    this.agent.destroy();
  }

  /**
   * Passes the body of `incoming` on and resolves to the JSON of the answer. Throws the service's error as soon as it
   * refuses, even while the body is still coming; the rest of it is then left unread.
   */
  async upload(incoming: IncomingMessage, grant: UploadGrant, call: Call): Promise<Buffer> {
    const upstream = this.open('POST', copy(incoming, uploadHeaders), grant, call);
    const onGone = () => {
      if (!incoming.complete) upstream.destroy(clientGone());
    };
    incoming.on('error', onGone).on('close', onGone);
    try {
      incoming.pipe(upstream);
      // The client may have left before anybody listened.
      if (incoming.destroyed) onGone();
      const response = await answerOf(upstream);
      const body = await readAll(response);
      if (response.statusCode === 202) return body;
      throw rebuilt(response, body);
    } catch (error) {
      throw explained(error);
    } finally {
      incoming.off('close', onGone);
      incoming.unpipe(upstream);
      // A connection on which a request was not sent to its end cannot be used again.
      if (!upstream.writableFinished) upstream.destroy();
    }
  }

  /**
   * Answers GET or HEAD of a blob, conditional and partial ones too. Before the first byte errors are thrown, after it
   * the client's connection is cut. Resolves when the answer has ended, one way or the other.
   */
  async read(incoming: IncomingMessage, outgoing: ServerResponse, grant: ReadGrant, call: Call): Promise<void> {
    const method = incoming.method === 'HEAD' ? 'HEAD' : 'GET';
    const headers = copy(incoming, readHeaders);
    let upstream = this.open(method, headers, grant, call);
    const onGone = () => upstream.destroy(clientGone());
    outgoing.once('close', onGone);
    try {
      upstream.end();
      const response = await answerOf(upstream).catch((error: unknown) => {
        // The listener had closed the idle connection; nothing of the answer was seen, so asking again is safe.
        if (!upstream.reusedSocket || outgoing.destroyed) throw error;
        upstream = this.open(method, headers, grant, call);
        upstream.end();
        return answerOf(upstream);
      });
      if (response.statusCode! >= 400) {
        const { 'content-range': contentRange } = response.headers;
        if (contentRange !== undefined) outgoing.setHeader('Content-Range', contentRange);
        throw rebuilt(response, await readAll(response));
      }
      outgoing.writeHead(response.statusCode!, copy(response, answerHeaders));
      await flow(response, outgoing);
    } catch (error) {
      throw explained(error);
    } finally {
      outgoing.off('close', onGone);
      upstream.destroy();
    }
  }

  private open(method: string, headers: HopHeaders, grant: UploadGrant | ReadGrant, call: Call): ClientRequest {
    const { secret, idleTimeoutMs } = this.options;
    const upstream = send({
      ...{ agent: this.agent, host: this.host, port: this.port, method, path: '/blob' },
      headers: {
        ...headers,
        'x-request-id': call.requestId,
        [grantHeader]: signGrant(secret, { ...grant, expiresAtMs: Date.now() + grantLifetimeMs }),
      },
    });
    upstream.setTimeout(idleTimeoutMs, () => upstream.destroy(transferTimedOut()));
    // Errors are met where they are waited for; one that comes later belongs to nobody.
    upstream.on('error', () => {});
    return upstream;
  }
}

function copy(from: IncomingMessage, names: readonly string[]): HopHeaders {
  const headers: HopHeaders = {};
  for (const name of names) {
    const value = from.headers[name];
    if (value !== undefined) headers[name] = value;
  }
  return headers;
}

function answerOf(upstream: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    upstream.once('response', resolve).once('error', reject);
    upstream.once('close', () => reject(new Error('the connection was closed before the answer')));
  });
}

/** Pipes an answer whose head is sent; what goes wrong from here on can only end the connection. */
function flow(response: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    outgoing.once('close', resolve).once('finish', resolve);
    response.once('error', () => outgoing.destroy());
    response.once('close', () => {
      if (!response.complete) outgoing.destroy();
    });
    response.pipe(outgoing);
    if (outgoing.destroyed) resolve();
  });
}

async function readAll(response: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    sizeBytes += chunk.length;
    if (sizeBytes > answerMaxBytes) throw new Error('the answer of the blobs service is too large');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

interface HopError {
  code: StatusName;
  reason: string;
  message: string;
  details: ErrorDetails;
}

/** The error that the service threw. An answer to HEAD has no body, so code and reason are in a header as well. */
function rebuilt(response: IncomingMessage, body: Buffer): unknown {
  const header = response.headers[grantErrorHeader];
  if (typeof header !== 'string') return new Error(`the blobs service answered ${response.statusCode}`);
  const [code, reason] = header.split(' ') as [StatusName, string];
  const { message, details } = (
    body.length > 0 ? JSON.parse(body.toString()) : { message: reason, details: {} }
  ) as HopError;
  return new ServiceError(code, reason, message, { details });
}

function explained(error: unknown): ServiceError {
  return error instanceof ServiceError ? error : unavailable('The blobs service cannot be reached', error);
}

function transferTimedOut(): ServiceError {
  return new ServiceError('DEADLINE_EXCEEDED', 'REQUEST_TIMEOUT', 'Nothing moved for too long');
}
