import { once } from 'node:events';
import { request, type Agent, type ClientRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import { request as requestOverTls } from 'node:https';
import { ServiceError, unavailable, type ErrorDetails, type StatusName } from '@granary/shared/errors';
import {
  directReadHeader,
  permitErrorHeader,
  permitHeader,
  uploadMethod,
  type DownloadPermit,
  type UploadPermit,
} from '@granary/shared/trust/transfer-permit';
import type { Logger } from '@granary/shared/logger';
import type { Call } from '@granary/shared/rpc/types';
import { headerText } from '@granary/shared/http/header-text';
import { flow, pump } from '@granary/shared/http/pipe';
import { ReadingAgent } from '@granary/shared/http/buffered-agent';
import { asOurFault } from '@granary/shared/trust/guard';
import type { CallCredentials } from '@granary/shared/trust/trust';
import { stalledUpload, type Download, type Upload } from '../admission/transfers';
import { clientDisconnected } from '../http/body';
import { limitSilence, pooledConnections, responseOf } from './client-request';
import { EndpointResolver, type Endpoint } from './endpoint-resolver';
import { RenewingAgent } from './renewing-agent';
import { StoreReads, storedBytesOf, type StoredBytes } from './store-reads';

export interface BlobProxyOptions {
  /** host:port of the internal HTTP listener of the blobs service, or several with commas between. */
  address: string;
  /** Sign the permits and, with TLS, authenticate the blobs service. */
  credentials: Pick<CallCredentials, 'permit' | 'tls'>;
  /** A transfer that is idle for this long is aborted. */
  idleTimeoutMs: number;
  log: Logger;
}

/** A permit only has to live until the transfer starts. */
const permitLifetimeMs = 30_000;
const answerMaxBytes = 64 * 1024;

const uploadHeaders = ['content-type', 'content-length', 'content-encoding'] as const;
const metadataHeader = 'x-blob-metadata';
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
  'location',
] as const;

type ProxyHeaders = Record<string, string | string[]>;

/**
 * Proxies the bytes of blobs between clients and the blobs service over HTTP/1.1, at the rate of the slower side. It
 * buffers nothing beyond the sockets. Errors of the service are thrown as the service threw them. Downloads come from
 * the object store itself where the blobs service says so (ADR 0036).
 */
export class BlobProxy {
  private readonly agent: Agent;
  private readonly peers: EndpointResolver;
  private readonly storeReads: StoreReads;

  constructor(private readonly options: BlobProxyOptions) {
    const { tls } = options.credentials;
    this.agent = tls ? new RenewingAgent(pooledConnections, tls) : new ReadingAgent(pooledConnections);
    this.peers = new EndpointResolver(options.address);
    this.storeReads = new StoreReads(options);
  }

  close(): void {
    this.agent.destroy();
    this.storeReads.close();
  }

  /**
   * Forwards the body of `incoming` and resolves to the JSON of the answer. Throws the error of the service as soon as
   * it refuses, even while the body is still arriving; the rest of it is then not read.
   */
  async upload(incoming: IncomingMessage, permit: UploadPermit, call: Call, transfer: Upload): Promise<Buffer> {
    // The body is not read before an endpoint answers 100, so until then the request can be sent to another one.
    const headers: ProxyHeaders = { ...copy(incoming, uploadHeaders), expect: '100-continue' };
    const metadata = incoming.headers[metadataHeader];
    if (typeof metadata === 'string') headers[metadataHeader] = asciiJson(headerText(metadata));
    let upstream: ClientRequest | undefined;
    let stopPumping = () => {};
    const onGone = () => {
      if (!incoming.complete) upstream?.destroy(clientDisconnected());
    };
    const onIdle = () => transfer.stalled();
    incoming.on('error', onGone).on('close', onGone).on('timeout', onIdle);
    try {
      transfer.onCancel((error) => upstream?.destroy(error));
      const answer = await this.ask(async (peer) => {
        // The client may have disconnected before there was a listener.
        if (incoming.destroyed) throw clientDisconnected();
        const onSilent = () => (transfer.isClientAwaited ? stalledUpload() : endpointTimedOut());
        upstream = this.open(peer, uploadMethod(permit), headers, permit, call, onSilent);
        upstream.flushHeaders();
        const coming = responseOf(upstream);
        // A rejection is handled by the race here, or where the answer is awaited below.
        coming.catch(() => {});
        await Promise.race([once(upstream, 'continue'), coming]);
        return { coming };
      });
      transfer.start();
      stopPumping = pump(incoming, upstream!, transfer);
      const response = await answer.coming;
      const body = await readAll(response);
      if (response.statusCode === 202) return body;
      throw uploadErrorIn(response, body);
    } catch (error) {
      // An endpoint aborts an idle upload, which is a fault of the client and not of the service.
      throw !(error instanceof ServiceError) && transfer.isStalled ? stalledUpload() : toServiceError(error);
    } finally {
      incoming.off('close', onGone).off('timeout', onIdle);
      stopPumping();
      // A connection on which a request was not sent to its end cannot be used again.
      if (upstream && !upstream.writableFinished) upstream.destroy();
    }
  }

  /**
   * Answers GET or HEAD of a blob, conditional and partial ones too. Before the first byte errors are thrown, after it
   * the connection of the client is closed. Resolves when the answer has ended, complete or not.
   */
  async read(
    incoming: IncomingMessage,
    outgoing: ServerResponse,
    permit: DownloadPermit,
    call: Call,
    transfer: Download,
  ): Promise<void> {
    const method = incoming.method === 'HEAD' ? 'HEAD' : 'GET';
    const headers = copy(incoming, readHeaders);
    let upstream: ClientRequest | undefined;
    const use = (request: ClientRequest): ClientRequest => {
      upstream = request;
      // The client may have disconnected before there was a listener.
      if (outgoing.destroyed) onGone();
      return request;
    };
    const onGone = () => upstream?.destroy(clientDisconnected());
    outgoing.once('close', onGone);
    const ask = (requestHeaders: ProxyHeaders) =>
      this.askForBytes(outgoing, (peer) =>
        use(this.open(peer, method, requestHeaders, permit, call, endpointTimedOut)),
      );
    try {
      transfer.onCancel(() => outgoing.destroy());
      const isDirect = method === 'GET' && this.storeReads.mayTry();
      let response = await ask(isDirect ? { ...headers, [directReadHeader]: '1' } : headers);
      const storedBytes = storedBytesOf(response);
      // It has no body then, and its connection is free for another request once that is read.
      if (storedBytes) response.resume();
      const bytes = storedBytes && (await this.storeReads.open(storedBytes, call.trace, use));
      if (storedBytes && !bytes) response = await ask(headers);
      const responseHeaders = copy(response, answerHeaders);
      if (bytes) responseHeaders['content-length'] = String(storedBytes.lengthBytes);
      outgoing.writeHead(response.statusCode!, responseHeaders);
      const etag = response.headers.etag!;
      const restAfter = async (movedBytes: number): Promise<IncomingMessage> => {
        const rest = await ask(restOf(storedBytes!, etag, movedBytes));
        // Anything else is not the rest, and the client must not take it for the end.
        if (rest.statusCode === 206) return rest;
        throw new Error(`the blobs service answered a range with ${rest.statusCode}`);
      };
      await flow(bytes ?? response, outgoing, transfer, bytes && restAfter);
    } catch (error) {
      throw toServiceError(error);
    } finally {
      outgoing.off('close', onGone);
      upstream?.destroy();
    }
  }

  /** A response with bytes, or one that says that there are none to send. Throws the error of the service. */
  private async askForBytes(
    outgoing: ServerResponse,
    open: (peer: Endpoint) => ClientRequest,
  ): Promise<IncomingMessage> {
    // Until a response begins, the request can be sent to another endpoint.
    const response = await this.ask((peer) => {
      const upstream = open(peer);
      upstream.end();
      return responseOf(upstream);
    });
    if (response.statusCode! < 400) return response;
    const { 'content-range': contentRange } = response.headers;
    if (contentRange !== undefined && !outgoing.headersSent) outgoing.setHeader('Content-Range', contentRange);
    throw errorIn(response, await readAll(response));
  }

  /**
   * Tries to begin a transfer with one endpoint after the other. `begin` must have had no effect when it fails to
   * connect; a ServiceError, which it throws itself or an endpoint answered, is not retried.
   */
  private async ask<T>(begin: (peer: Endpoint) => Promise<T>): Promise<T> {
    const peers = await this.peers.candidates();
    for (let attempt = 1; ; attempt++) {
      const peer = peers[(attempt - 1) % peers.length]!;
      try {
        return await begin(peer);
      } catch (error) {
        if (error instanceof ServiceError || attempt > peers.length) throw error;
        this.peers.markUnreachable(peer);
      }
    }
  }

  private open(
    peer: Endpoint,
    method: string,
    headers: ProxyHeaders,
    permit: UploadPermit | DownloadPermit,
    call: Call,
    onSilent: () => ServiceError,
  ): ClientRequest {
    const { credentials, idleTimeoutMs } = this.options;
    const send = credentials.tls ? requestOverTls : request;
    const upstream = send({
      ...peer,
      agent: this.agent,
      method,
      path: '/blob',
      headers: {
        ...headers,
        'x-request-id': call.requestId,
        ...(call.trace !== undefined && { traceparent: call.trace }),
        [permitHeader]: credentials.permit({ ...permit, expiresAtMs: Date.now() + permitLifetimeMs }),
      },
    });
    limitSilence(upstream, idleTimeoutMs, onSilent);
    return upstream;
  }
}

/** Asks for what follows the first `movedBytes`, of the same bytes. */
function restOf({ lengthBytes, range }: StoredBytes, etag: string, movedBytes: number): ProxyHeaders {
  const { first, last } = range ?? { first: 0, last: lengthBytes - 1 };
  return { range: `bytes=${first + movedBytes}-${last}`, 'if-match': etag };
}

function copy(from: IncomingMessage, names: readonly string[]): ProxyHeaders {
  const headers: ProxyHeaders = {};
  for (const name of names) {
    const value = from.headers[name];
    if (value !== undefined) headers[name] = value;
  }
  return headers;
}

/**
 * A JSON text in ASCII: other characters become escapes. Node encodes headers as UTF-8 that it sends with an `Expect`,
 * so any other character would arrive as two.
 */
function asciiJson(text: string): string {
  // An escape is matched as a whole, so that invalid JSON, a backslash before such a character, stays invalid.
  return text.replace(/\\[^]|[\u0080-\uffff]/g, (match) =>
    match.startsWith('\\')
      ? match.replace(/[\u0080-\uffff]/, '?')
      : `\\u${match.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

function readAll(response: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let sizeBytes = 0;
    response.on('data', (chunk: Buffer) => {
      sizeBytes += chunk.length;
      if (sizeBytes > answerMaxBytes) response.destroy(new Error('the answer of the blobs service is too large'));
      else chunks.push(chunk);
    });
    response.once('end', () => resolve(Buffer.concat(chunks, sizeBytes))).once('error', reject);
    response.once('close', () => reject(new Error('the connection was closed within the answer')));
  });
}

interface ProxiedError {
  code: StatusName;
  reason: string;
  message: string;
  details: ErrorDetails;
}

/** The error that the service threw. An answer to HEAD has no body, so code and reason are in a header as well. */
function errorIn(response: IncomingMessage, body: Buffer): unknown {
  const header = response.headers[permitErrorHeader];
  if (typeof header !== 'string') return new Error(`the blobs service answered ${response.statusCode}`);
  const [code, reason] = header.split(' ') as [StatusName, string];
  const { message, details } = (
    body.length > 0 ? JSON.parse(body.toString()) : { message: reason, details: {} }
  ) as ProxiedError;
  // The blobs service logged what it answers as INTERNAL.
  return asOurFault(new ServiceError(code, reason, message, { details, isLogged: code === 'INTERNAL' }));
}

/** A copy of the release before does not know uploads under ids of clients, and says that there is nothing. */
function uploadErrorIn(response: IncomingMessage, body: Buffer): unknown {
  const error = errorIn(response, body);
  if (!(error instanceof ServiceError && error.reason === 'NOT_FOUND')) return error;
  return unavailable('A copy of the blobs service is of an older release; retry after the upgrade');
}

function toServiceError(error: unknown): ServiceError {
  return error instanceof ServiceError ? error : unavailable('The blobs service cannot be reached', error);
}

function endpointTimedOut(): ServiceError {
  return new ServiceError('DEADLINE_EXCEEDED', 'DEADLINE_EXCEEDED', 'The blobs service did not answer in time');
}
