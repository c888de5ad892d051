import { createHash } from 'node:crypto';
import * as http from 'node:http';
import * as https from 'node:https';
import { Client, S3Error } from 'minio';
import { ConfigError } from '../../config';
import { ServiceError, unavailable } from '../../errors';
import { ReadingAgent } from '../../http/buffered-agent';
import { storageFull } from '../../service/storage';
import type { ByteRange, PresignedHeaders } from '../store';

export interface S3Options {
  /** `https://host` or `http://host:port`. */
  endpoint: string;
  region: string;
  bucket: string;
  accessKey: string;
  secretKey: string;
  /** A request on which nothing moves for this long has failed. */
  idleTimeoutMs?: number;
  /** How long a transfer that has begun waits for a store that went away. */
  transferPatienceMs?: number;
}

/** An upload in parts that has begun and was neither completed nor aborted. */
export interface OpenUpload {
  key: string;
  uploadId: string;
}

export interface ListedObject {
  key: string;
  changedAt: Date;
}

const defaultIdleTimeoutMs = 30_000;
const idleConnectionMs = 60_000;
/** How long a call is repeated when nothing is lost but the call. */
const briefPatienceMs = 2_000;
/** And when a transfer depends on it: long enough for a store that is restarted. */
const defaultTransferPatienceMs = 15_000;
const firstPauseMs = 50;
const pauseMaxMs = 2_000;
const listedAtOnce = 1_000;

/**
 * The calls of S3 that the object store needs, on one bucket. Each may be repeated without harm and is, with growing
 * pauses, while the store cannot be reached or fails by itself (5xx); then it throws UNAVAILABLE. No call waits for
 * ever: a connection on which nothing moves is cut.
 */
export class S3Bucket {
  private readonly client: Client;
  private readonly agent: http.Agent;
  private readonly name: string;
  private readonly transferPatienceMs: number;
  readonly idleTimeoutMs: number;

  constructor(private readonly options: S3Options) {
    const { protocol, hostname, port } = new URL(options.endpoint);
    const isSecure = protocol === 'https:';
    const agentOptions = { keepAlive: true, timeout: idleConnectionMs };
    this.agent = isSecure ? new https.Agent(agentOptions) : new ReadingAgent(agentOptions);
    this.name = options.bucket;
    this.idleTimeoutMs = options.idleTimeoutMs ?? defaultIdleTimeoutMs;
    this.transferPatienceMs = options.transferPatienceMs ?? defaultTransferPatienceMs;
    this.client = new Client({
      // URL keeps the brackets of an IPv6 address, which a host name for a socket has not.
      endPoint: hostname.replace(/^\[|\]$/g, ''),
      ...(port !== '' && { port: Number(port) }),
      ...{ useSSL: isSecure, region: options.region, accessKey: options.accessKey, secretKey: options.secretKey },
      transport: { request: requestWith(isSecure ? https : http, this.idleTimeoutMs) } as typeof http,
      transportAgent: this.agent,
      // The client's own retries warn on the console, and leave the answers that they do not like unread.
      retryOptions: { disableRetry: true },
    });
  }

  /** Makes the bucket if it is not there. Throws a ConfigError when it can neither be used nor made. */
  async ensure(): Promise<void> {
    const { bucket, endpoint } = this.options;
    try {
      if (await retried(() => this.client.bucketExists(this.name), this.transferPatienceMs)) return;
      await retried(() => this.client.makeBucket(this.name, this.options.region));
    } catch (error) {
      const code = codeOf(error instanceof ServiceError ? error.cause : error);
      // Another copy of the service made it just now.
      if (code === 'BucketAlreadyOwnedByYou') return;
      if (code === 'BucketAlreadyExists') throw new ConfigError(`The bucket ${bucket} belongs to somebody else`);
      const why = code === '' ? 'it cannot be reached' : `it answers ${code}`;
      throw new ConfigError(`The bucket ${bucket} at ${endpoint} can neither be used nor made: ${why}`);
    }
  }

  /** `sha256` is the digest of the bytes in hex, for callers that know it already. */
  put(key: string, bytes: Buffer, sha256 = createHash('sha256').update(bytes).digest('hex')): Promise<void> {
    return retried(async () => {
      const headers = { 'Content-Length': bytes.length, ...this.digest(bytes) };
      const request = { method: 'PUT', bucketName: this.name, objectName: key, headers };
      const checked = this.client.enableSHA256 ? sha256 : '';
      await drained(await this.client.makeRequestStreamAsync(request, bytes, checked, [200], this.options.region));
    });
  }

  /** Answers the id of an upload in parts. */
  beginUpload(key: string): Promise<string> {
    return retried(() => this.client.initiateNewMultipartUpload(this.name, key, {}));
  }

  /** Sends a part, numbered from 1, and answers its entity tag. `bytes` must stay as they are until it settles. */
  putPart(key: string, uploadId: string, partNumber: number, bytes: Buffer): Promise<string> {
    return retried(async () => {
      const part = { bucketName: this.name, objectName: key, uploadID: uploadId, partNumber };
      return (await this.client.uploadPart({ ...part, headers: this.digest(bytes) }, bytes)).etag;
    }, this.transferPatienceMs);
  }

  /** Makes an object of the parts, which have `sizeBytes` together. */
  async completeUpload(key: string, uploadId: string, etags: readonly string[], sizeBytes: number): Promise<void> {
    const parts = etags.map((etag, at) => ({ part: at + 1, etag }));
    try {
      const complete = () => this.client.completeMultipartUpload(this.name, key, uploadId, parts);
      await retried(complete, this.transferPatienceMs);
    } catch (error) {
      // It was completed already when the answer to an earlier try got lost.
      if (codeOf(error) === 'NoSuchUpload' && (await this.size(key)) === sizeBytes) return;
      throw error;
    }
  }

  /** Aborts every upload in parts that has begun under a key. Answers how many there were. */
  async abortUploads(key: string): Promise<number> {
    let count = 0;
    for await (const upload of this.listUploads(key)) {
      if (upload.key !== key) continue;
      await found(retried(() => this.client.abortMultipartUpload(this.name, key, upload.uploadId)));
      count++;
    }
    return count;
  }

  /**
   * An object or a range of it, undefined when there is none. The answer is exactly what was asked for, or this
   * throws; from then on its time limit is the reader's business.
   */
  async get(key: string, range?: ByteRange, patienceMs = briefPatienceMs): Promise<http.IncomingMessage | undefined> {
    const { start = 0, end } = range ?? {};
    const length = end === undefined ? 0 : end - start + 1;
    const answer = await found(
      retried(
        () => this.client.getPartialObject(this.name, key, start, length) as Promise<http.IncomingMessage>,
        patienceMs,
      ),
    );
    if (!answer || (length === 0 && start === 0) || answer.headers['content-length'] === String(length)) return answer;
    answer.destroy();
    throw new Error(`the object store answered a range of ${length} bytes with ${answer.headers['content-length']}`);
  }

  /** The rest of an object that broke off in the middle; for this it is worth to wait. */
  getRest(key: string, range: ByteRange): Promise<http.IncomingMessage | undefined> {
    return this.get(key, range, this.transferPatienceMs);
  }

  async size(key: string): Promise<number | undefined> {
    return (await found(retried(() => this.client.statObject(this.name, key))))?.size;
  }

  async remove(key: string): Promise<void> {
    await found(retried(() => this.client.removeObject(this.name, key)));
  }

  /** The uploads under a key. (MinIO knows those of other prefixes, and of none, only until it is restarted.) */
  async *listUploads(key: string): AsyncGenerator<OpenUpload> {
    let [keyMarker, uploadIdMarker] = ['', ''];
    for (;;) {
      const page = await retried(() =>
        this.client.listIncompleteUploadsQuery(this.name, key, keyMarker, uploadIdMarker, ''),
      );
      yield* page.uploads;
      if (!page.isTruncated) return;
      [keyMarker, uploadIdMarker] = [page.nextKeyMarker, page.nextUploadIdMarker];
    }
  }

  /** Pages of the objects whose keys begin with `prefix`. */
  async *listObjects(prefix: string): AsyncGenerator<ListedObject[]> {
    let token = '';
    for (;;) {
      const page = await retried(() => this.client.listObjectsV2Query(this.name, prefix, token, '', listedAtOnce, ''));
      yield page.objects.flatMap(({ name, lastModified }) =>
        name === undefined || lastModified === undefined ? [] : [{ key: name, changedAt: new Date(lastModified) }],
      );
      if (!page.isTruncated) return;
      token = page.nextContinuationToken ?? '';
    }
  }

  /** A URL under which anybody can read the object until it expires. No request is made for it. */
  presign(key: string, lifetimeS: number, headers: PresignedHeaders): Promise<string> {
    return this.client.presignedGetObject(this.name, key, lifetimeS, {
      'response-content-type': headers.contentType,
      'response-content-disposition': headers.contentDisposition,
      'response-cache-control': headers.cacheControl,
    });
  }

  close(): void {
    this.agent.destroy();
  }

  /**
   * What the store checks the bytes against. Without TLS that is the SHA-256 that the client signs, and over TLS,
   * where it leaves the bytes out of the signature, a digest that goes with them.
   */
  private digest(bytes: Buffer): Record<string, string> {
    return this.client.enableSHA256 ? {} : { 'Content-MD5': createHash('md5').update(bytes).digest('base64') };
  }
}

/** An answer that says that the store is at fault, or busy; the same request may succeed later. */
class StoreFailure extends Error {
  override readonly name = 'StoreFailure';
}

/** The store has no room: MinIO's XMinioStorageFull. To ask again at once would not help. */
class StoreFull extends Error {
  override readonly name = 'StoreFull';
}

const isFailure = (status: number | undefined) => status === 429 || status === 408 || (status ?? 0) >= 500;

/** How the client sends a request: with a time limit, and an answer that means "try again" is an error at once. */
function requestWith(transport: typeof http | typeof https, idleTimeoutMs: number) {
  return (options: http.RequestOptions, onAnswer: (answer: http.IncomingMessage) => void): http.ClientRequest => {
    const request = transport.request(options, (answer) => {
      if (!isFailure(answer.statusCode)) return onAnswer(answer);
      answer.resume();
      if (answer.statusCode === 507) return void request.destroy(new StoreFull('the object store is full'));
      request.destroy(new StoreFailure(`the object store answered ${answer.statusCode}`));
    });
    request.setTimeout(idleTimeoutMs, () => request.destroy(new StoreFailure('the object store does not answer')));
    return request;
  };
}

const broken = new Set([
  'ECONNRESET',
  'ECONNREFUSED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EAI_AGAIN',
]);
const busy = new Set(['SlowDown', 'ServiceUnavailable', 'InternalError', 'RequestTimeout', 'OperationAborted']);

/** Answers that somebody has to mend outside of this process. */
const refusals = new Set([
  'AccessDenied',
  'InvalidAccessKeyId',
  'SignatureDoesNotMatch',
  'RequestTimeTooSkewed',
  'NoSuchBucket',
]);

const codeOf = (error: unknown) => (error as { code?: string } | undefined)?.code ?? '';

function isTransient(error: unknown): boolean {
  return error instanceof StoreFailure || broken.has(codeOf(error)) || busy.has(codeOf(error));
}

async function retried<T>(call: () => Promise<T>, patienceMs = briefPatienceMs): Promise<T> {
  const deadlineMs = Date.now() + patienceMs;
  for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(2 * pauseMs, pauseMaxMs)) {
    try {
      return await call();
    } catch (error) {
      if (error instanceof StoreFull) throw storageFull('objects', error);
      if (refusals.has(codeOf(error))) throw unavailable('The object store refuses the service', error);
      if (!isTransient(error)) throw error;
      const jitteredMs = pauseMs * (0.5 + Math.random());
      if (Date.now() + jitteredMs > deadlineMs) throw unavailable('The object store cannot be reached', error);
      await new Promise((resolve) => setTimeout(resolve, jitteredMs));
    }
  }
}

const absent = new Set(['NoSuchKey', 'NotFound', 'NoSuchUpload']);

/** Undefined instead of the error that says that there is no such thing. */
async function found<T>(result: Promise<T>): Promise<T | undefined> {
  try {
    return await result;
  } catch (error) {
    if (error instanceof S3Error && absent.has(codeOf(error))) return undefined;
    throw error;
  }
}

function drained(answer: http.IncomingMessage): Promise<void> {
  return new Promise((resolve, reject) => {
    answer.once('end', resolve).once('error', reject).resume();
  });
}
