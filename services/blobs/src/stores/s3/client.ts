import { createHash } from 'node:crypto';
import * as http from 'node:http';
import * as https from 'node:https';
import { Client, S3Error } from 'minio';
import { CredentialProvider } from 'minio/dist/main/CredentialProvider.js';
import { Credentials } from 'minio/dist/main/Credentials.js';
import { ConfigError } from '@granary/shared/config';
import { ServiceError } from '@granary/shared/errors';
import { NotAvailableError } from '@granary/shared/start-error';
import { ReadingAgent } from '@granary/shared/http/buffered-agent';
import type { ByteRange, PresignedHeaders } from '../store';
import type { S3Keys } from './web-identity';
import { codeOf, reasonOf, isRefusal, retried, StoreFailure, StoreFull } from './retry';

export interface S3Options {
  /** `https://host` or `http://host:port`. */
  endpoint: string;
  region: string;
  bucket: string;
  accessKey?: string;
  secretKey?: string;
  /** A source of keys that expire, in place of `accessKey` and `secretKey`. */
  keys?: () => Promise<S3Keys>;
  /** A connection without traffic for this long has failed. */
  idleTimeoutMs?: number;
  /** How long calls of a transfer under way are retried while the store is away. */
  transferRetryMs?: number;
}

/** Gives the client the keys for each request. */
class ExpiringKeys extends CredentialProvider {
  constructor(private readonly source: () => Promise<S3Keys>) {
    super({ accessKey: '', secretKey: '' });
  }

  override async getCredentials(): Promise<Credentials> {
    return new Credentials(await this.source());
  }
}

/** A multipart upload that was neither completed nor aborted. */
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
/** How long a call is retried on which nothing else depends. */
const callRetryMs = 2_000;
/** How long a call of a transfer is retried: long enough for a restart of the store. */
const defaultTransferRetryMs = 15_000;
const listPageSize = 1_000;

/**
 * The calls of S3 that the object store needs, on one bucket; the only file that imports `minio`. Each call is
 * idempotent and is retried while the store cannot be reached or answers 5xx; then it throws UNAVAILABLE. Every request
 * has an idle timeout.
 *
 * Parts are sent by the multipart calls of the client, not by its `putObject` with a stream, which completes the object
 * itself, retries no part, holds three for each upload and takes twice the CPU (ADR 0015). `put` sends the request
 * itself, for `putObject` would compute two digests of the bytes.
 */
export class S3Bucket {
  private readonly client: Client;
  private readonly agent: http.Agent;
  private readonly name: string;
  private readonly transferRetryMs: number;
  readonly idleTimeoutMs: number;

  constructor(private readonly options: S3Options) {
    const { protocol, hostname, port } = new URL(options.endpoint);
    const isSecure = protocol === 'https:';
    const agentOptions = { keepAlive: true, timeout: idleConnectionMs };
    this.agent = isSecure ? new https.Agent(agentOptions) : new ReadingAgent(agentOptions);
    this.name = options.bucket;
    this.idleTimeoutMs = options.idleTimeoutMs ?? defaultIdleTimeoutMs;
    this.transferRetryMs = options.transferRetryMs ?? defaultTransferRetryMs;
    this.client = new Client({
      // URL keeps the brackets of an IPv6 address; a socket expects the address without.
      endPoint: hostname.replace(/^\[|\]$/g, ''),
      ...(port !== '' && { port: Number(port) }),
      useSSL: isSecure,
      region: options.region,
      ...(options.keys
        ? { credentialsProvider: new ExpiringKeys(options.keys) }
        : { accessKey: options.accessKey!, secretKey: options.secretKey! }),
      transport: { request: requestWith(isSecure ? https : http, this.idleTimeoutMs) } as typeof http,
      transportAgent: this.agent,
      // The retries of the client warn on the console and leave the bodies of failed answers unread.
      retryOptions: { disableRetry: true },
    });
  }

  /**
   * Creates the bucket if it is missing. Throws a NotAvailableError while the store cannot be reached or the bucket is
   * missing and may not be created, a ConfigError when the store refuses the keys.
   */
  async ensure(): Promise<void> {
    const { bucket, endpoint } = this.options;
    let isMissing = false;
    try {
      if (await retried(() => this.client.bucketExists(this.name), this.transferRetryMs)) return;
      isMissing = true;
      await retried(() => this.client.makeBucket(this.name, this.options.region), callRetryMs);
    } catch (error) {
      const code = codeOf(reasonOf(error instanceof ServiceError ? error.cause : error));
      // Another replica created it meanwhile.
      if (code === 'BucketAlreadyOwnedByYou') return;
      if (code === 'BucketAlreadyExists') throw new ConfigError(`The bucket ${bucket} belongs to somebody else`);
      const why = code === '' ? 'it cannot be reached' : `it answers ${code}`;
      const message = `The bucket ${bucket} at ${endpoint} can neither be used nor made: ${why}`;
      // A missing bucket may still be created with other keys.
      const isAway = code === 'ENOTFOUND' || (error instanceof ServiceError && !isRefusal(code));
      throw isMissing || isAway ? new NotAvailableError(message, { cause: error }) : new ConfigError(message);
    }
  }

  /** `sha256`: the digest of the bytes in hex, for callers that have it already. */
  put(key: string, bytes: Buffer, sha256 = createHash('sha256').update(bytes).digest('hex')): Promise<void> {
    return retried(async () => {
      const headers = { 'Content-Length': bytes.length, ...this.digest(bytes) };
      const request = { method: 'PUT', bucketName: this.name, objectName: key, headers };
      const signed = this.client.enableSHA256 ? sha256 : '';
      await drained(await this.client.makeRequestStreamAsync(request, bytes, signed, [200], this.options.region));
    }, callRetryMs);
  }

  /** Returns the id of a new multipart upload. */
  beginUpload(key: string): Promise<string> {
    return retried(() => this.client.initiateNewMultipartUpload(this.name, key, {}), callRetryMs);
  }

  /** Sends a part, numbered from 1, and returns its entity tag. `bytes` must not change until it settles. */
  putPart(key: string, uploadId: string, partNumber: number, bytes: Buffer): Promise<string> {
    return retried(async () => {
      const part = { bucketName: this.name, objectName: key, uploadID: uploadId, partNumber };
      return (await this.client.uploadPart({ ...part, headers: this.digest(bytes) }, bytes)).etag;
    }, this.transferRetryMs);
  }

  /** Completes a multipart upload; its parts have `sizeBytes` together. */
  async completeUpload(key: string, uploadId: string, etags: readonly string[], sizeBytes: number): Promise<void> {
    const parts = etags.map((etag, index) => ({ part: index + 1, etag }));
    try {
      const complete = () => this.client.completeMultipartUpload(this.name, key, uploadId, parts);
      await retried(complete, this.transferRetryMs);
    } catch (error) {
      // An earlier attempt completed it, and only its answer was lost.
      if (codeOf(error) === 'NoSuchUpload' && (await this.size(key)) === sizeBytes) return;
      throw error;
    }
  }

  /** Aborts all multipart uploads of a key. Returns how many there were. */
  async abortUploads(key: string): Promise<number> {
    let count = 0;
    for await (const upload of this.listUploads(key)) {
      if (upload.key !== key) continue;
      await unlessAbsent(retried(() => this.client.abortMultipartUpload(this.name, key, upload.uploadId), callRetryMs));
      count++;
    }
    return count;
  }

  /**
   * An object or a range of it; undefined when there is no such object. Throws when the answer has another length than
   * the range. The caller is responsible for the timeout of the body.
   */
  async get(key: string, range?: ByteRange, retryMs = callRetryMs): Promise<http.IncomingMessage | undefined> {
    const { start = 0, end } = range ?? {};
    const length = end === undefined ? 0 : end - start + 1;
    const answer = await unlessAbsent(
      retried(
        () => this.client.getPartialObject(this.name, key, start, length) as Promise<http.IncomingMessage>,
        retryMs,
      ),
    );
    if (!answer || (length === 0 && start === 0) || answer.headers['content-length'] === String(length)) return answer;
    answer.destroy();
    throw new Error(`the object store answered a range of ${length} bytes with ${answer.headers['content-length']}`);
  }

  /** The rest of an object after a broken connection; retried for as long as a part of an upload. */
  getRest(key: string, range: ByteRange): Promise<http.IncomingMessage | undefined> {
    return this.get(key, range, this.transferRetryMs);
  }

  async size(key: string): Promise<number | undefined> {
    return (await unlessAbsent(retried(() => this.client.statObject(this.name, key), callRetryMs)))?.size;
  }

  async remove(key: string): Promise<void> {
    await unlessAbsent(retried(() => this.client.removeObject(this.name, key), callRetryMs));
  }

  /** The multipart uploads of a key. MinIO lists them by a whole key only, once it was restarted. */
  async *listUploads(key: string): AsyncGenerator<OpenUpload> {
    let [keyMarker, uploadIdMarker] = ['', ''];
    for (;;) {
      const page = await retried(
        () => this.client.listIncompleteUploadsQuery(this.name, key, keyMarker, uploadIdMarker, ''),
        callRetryMs,
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
      const page = await retried(
        () => this.client.listObjectsV2Query(this.name, prefix, token, '', listPageSize, ''),
        callRetryMs,
      );
      yield page.objects.flatMap(({ name, lastModified }) =>
        name === undefined || lastModified === undefined ? [] : [{ key: name, changedAt: new Date(lastModified) }],
      );
      if (!page.isTruncated) return;
      token = page.nextContinuationToken ?? '';
    }
  }

  /**
   * A URL that gives read access to the object until it expires. Makes no request. `headers` are sent by the store in
   * place of its own.
   */
  presign(key: string, lifetimeS: number, headers?: PresignedHeaders): Promise<string> {
    const parameters = headers && {
      'response-content-type': headers.contentType,
      'response-content-disposition': headers.contentDisposition,
      'response-cache-control': headers.cacheControl,
    };
    return this.client.presignedGetObject(this.name, key, lifetimeS, parameters);
  }

  close(): void {
    this.agent.destroy();
  }

  /**
   * The checksum that the store verifies. Without TLS that is the SHA-256 in the signature; over TLS the client does
   * not sign the payload, so it carries a Content-MD5.
   */
  private digest(bytes: Buffer): Record<string, string> {
    return this.client.enableSHA256 ? {} : { 'Content-MD5': createHash('md5').update(bytes).digest('base64') };
  }
}

const isFailure = (status: number | undefined) => status === 429 || status === 408 || (status ?? 0) >= 500;

/** Sends the requests of the client with a timeout, and turns answers that mean "try again" into errors at once. */
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

const absent = new Set(['NoSuchKey', 'NotFound', 'NoSuchUpload']);

/** Undefined instead of an error that says "not found". */
async function unlessAbsent<T>(result: Promise<T>): Promise<T | undefined> {
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
