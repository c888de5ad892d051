import { request, type Agent, type ClientRequest, type IncomingMessage } from 'node:http';
import { Agent as TlsAgent, request as requestOverTls } from 'node:https';
import { ReadingAgent } from '@granary/shared/http/buffered-agent';
import { ServiceError } from '@granary/shared/errors';
import type { Logger } from '@granary/shared/logger';
import { traced, type SpanStart } from '@granary/shared/telemetry/trace';
import { storeLengthHeader, storeUrlHeader } from '@granary/shared/trust/transfer-permit';
import { limitSilence, pooledConnections, responseOf } from './client-request';

/** Names the bytes of a download in the object store. Offsets are inclusive. */
export interface StoredBytes {
  /** Gives read access by itself, so it belongs in no log. */
  url: string;
  lengthBytes: number;
  /** Present where a part of the blob is to be read. */
  range?: { first: number; last: number };
}

export interface StoreReadsOptions {
  log: Logger;
  /** A read without progress for this long has failed. */
  idleTimeoutMs: number;
}

/** How long reads go through the blobs service after the store could not be reached; then one read tries again. */
const pauseMs = 30_000;
/** A store that has not responded by then is given up for this read, which blobs still has time to answer. */
const responseTimeoutMs = 5_000;
/** The blobs service names its own reads so, too. */
const span: SpanStart = { service: 'gateway', name: 'object read', kind: 'client' };

/** The place that the blobs service names in its response to a download; undefined where it sends the bytes itself. */
export function storedBytesOf({ headers }: IncomingMessage): StoredBytes | undefined {
  const { [storeUrlHeader]: url, [storeLengthHeader]: length, 'content-range': contentRange } = headers;
  if (typeof url !== 'string') return undefined;
  const lengthBytes = Number(length);
  const part = /^bytes (\d+)-(\d+)\//.exec(contentRange ?? '');
  return part ? { url, lengthBytes, range: { first: Number(part[1]), last: Number(part[2]) } } : { url, lengthBytes };
}

/** Reads the bytes of blobs from the object store, by URLs that the blobs service signs. */
export class StoreReads {
  private readonly agents: Record<string, Agent>;
  /** The end of the pause; undefined since a read has succeeded. */
  private pausedUntilMs: number | undefined;

  constructor(private readonly options: StoreReadsOptions) {
    this.agents = { 'http:': new ReadingAgent(pooledConnections), 'https:': new TlsAgent(pooledConnections) };
  }

  close(): void {
    for (const agent of Object.values(this.agents)) agent.destroy();
  }

  /** Whether to read from the store: yes, unless it failed lately. After a pause it says so to one caller only. */
  mayTry(): boolean {
    if (this.pausedUntilMs === undefined) return true;
    const nowMs = performance.now();
    if (nowMs < this.pausedUntilMs) return false;
    this.pausedUntilMs = nowMs + pauseMs;
    return true;
  }

  /**
   * The response of the store with exactly these bytes. Undefined where the store does not send them: then they are to
   * be read through the blobs service. `onRequest` gets the request, to destroy it when nobody waits for it.
   */
  async open(
    storedBytes: StoredBytes,
    trace: string | undefined,
    onRequest: (request: ClientRequest) => void,
  ): Promise<IncomingMessage | undefined> {
    const storeRequest = this.send(storedBytes);
    onRequest(storeRequest);
    try {
      const response = await traced(span, trace, () => responseOf(storeRequest));
      if (isExactly(response, storedBytes)) {
        this.pausedUntilMs = undefined;
        response.setTimeout(this.options.idleTimeoutMs);
        return response;
      }
      response.destroy();
      // An object that is gone says nothing about the store: its blob was removed, or shares another object now.
      if (response.statusCode !== 404) this.pause(`it answers ${response.statusCode}`);
    } catch (error) {
      // The caller destroyed it.
      if (error instanceof ServiceError) throw error;
      const { code, message } = error as NodeJS.ErrnoException;
      // A store closes idle connections, and may do so while a request is on its way.
      if (!storeRequest.reusedSocket || (code !== 'ECONNRESET' && code !== 'EPIPE')) this.pause(message);
    }
    return undefined;
  }

  private send({ url, range }: StoredBytes): ClientRequest {
    const target = new URL(url);
    const headers = range && { range: `bytes=${range.first}-${range.last}` };
    const send = target.protocol === 'https:' ? requestOverTls : request;
    const storeRequest = send(target, { agent: this.agents[target.protocol], headers });
    limitSilence(storeRequest, responseTimeoutMs, () => new Error('it does not answer'));
    storeRequest.end();
    return storeRequest;
  }

  private pause(why: string): void {
    if (this.pausedUntilMs === undefined) {
      this.options.log.warn({ why }, 'the gateway cannot read from the object store; downloads go through blobs');
    }
    this.pausedUntilMs = performance.now() + pauseMs;
  }
}

/** Whether the store sends these bytes and no others: a wrong length would end the client's response early or never. */
function isExactly({ statusCode, headers }: IncomingMessage, { lengthBytes, range }: StoredBytes): boolean {
  if (headers['content-length'] !== String(lengthBytes)) return false;
  if (!range) return statusCode === 200;
  return statusCode === 206 && headers['content-range']?.startsWith(`bytes ${range.first}-${range.last}/`) === true;
}
