import type { ServerResponse } from 'node:http';
import { brotliCompress, constants, createBrotliCompress, createGzip, gzip } from 'node:zlib';
import { promisify } from 'node:util';
import Negotiator from 'negotiator';
import { Semaphore } from '@granary/shared/concurrency/semaphore';
import { LRUCache } from 'lru-cache';
import type { Answer } from './answer';
import { whenDrained } from './drained';

export type ContentEncoding = 'br' | 'gzip';

/** The encodings on offer, in the order of preference between those that the client accepts equally. */
const offered = ['br', 'gzip', 'identity'];
/** A smaller body fits into a packet anyway. */
const compressedFromBytes = 1024;
/** The bytes that one step compresses, in about a quarter of a millisecond of a thread of the pool. */
const stepBytes = 64 * 1024;
/** Answers compressed at once, most of them waiting for their readers; zlib's state takes up to a megabyte for each. */
const openMax = 128;
/** Clients send few different headers, but may invent any. */
const negotiatedMax = 256;

// Compression at these levels takes about as long as sending: higher ones take twice the time for a tenth less.
const streamed = {
  br: { params: { [constants.BROTLI_PARAM_QUALITY]: 3, [constants.BROTLI_PARAM_LGWIN]: 18 } },
  gzip: { level: 1 },
};
const once = {
  br: { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } },
  gzip: { level: 9 },
};

const compressWhole = {
  br: (body: Buffer) => promisify(brotliCompress)(body, once.br),
  gzip: (body: Buffer) => promisify(gzip)(body, once.gzip),
};

/** The entity tag of a compressed representation, whose bytes are others. A weak tag is not about bytes. */
export const etagOf = (plain: string, encoding: ContentEncoding): string =>
  plain.startsWith('W/') ? plain : plain.replace(/"$/, `-${encoding}"`);

export interface CompressionLimits {
  isEnabled: boolean;
  /** Threads of the pool that compress at once. */
  concurrency: number;
}

/** Compresses answers of JSON and text for clients that ask for it. */
export class Compression {
  private readonly slots: Semaphore;
  /** Results by Accept-Encoding. */
  private readonly negotiated = new LRUCache<string, ContentEncoding | 'identity'>({ max: negotiatedMax });
  private open = 0;

  constructor(private readonly limits: CompressionLimits) {
    this.slots = new Semaphore(limits.concurrency);
  }

  /** Whether the answer depends on what encodings the client accepts. */
  covers({ body, headers, isSecret }: Answer): boolean {
    if (!this.limits.isEnabled || body === undefined || body.length < compressedFromBytes) return false;
    if (isSecret === true || headers['Content-Encoding'] !== undefined) return false;
    const type = headers['Content-Type'] ?? '';
    return type.startsWith('application/json') || type.startsWith('text/');
  }

  /** The best encoding by Accept-Encoding; undefined for none, and while too many answers are compressed. */
  encodingFor(acceptEncoding: string | string[] | undefined): ContentEncoding | undefined {
    if (!this.limits.isEnabled || acceptEncoding === undefined || this.open >= openMax) return undefined;
    const header = String(acceptEncoding);
    let encoding = this.negotiated.get(header);
    if (encoding === undefined) {
      const [best] = new Negotiator({ headers: { 'accept-encoding': header } }).encodings(offered, {
        preferred: offered,
      });
      encoding = best === 'br' || best === 'gzip' ? best : 'identity';
      this.negotiated.set(header, encoding);
    }
    return encoding === 'identity' ? undefined : encoding;
  }

  /** The whole of a body that never changes, at a level that is worth the time only once. */
  compressOnce(body: Buffer, encoding: ContentEncoding): Promise<Buffer> {
    return compressWhole[encoding](body);
  }

  /** Sends a body whose head is written, step by step and at the rate at which the client reads. */
  send(response: ServerResponse, body: Buffer, encoding: ContentEncoding): void {
    const encoded = this.encode(response, encoding);
    encoded
      .write(body, true)
      .then(() => void response.end())
      .catch(() => response.destroy())
      .finally(() => encoded.close());
  }

  /** Compresses a body that comes in parts, for an answer whose head is written. It has to be closed. */
  encode(
    response: ServerResponse,
    encoding: ContentEncoding,
    observer?: Parameters<typeof whenDrained>[1],
  ): EncodedBody {
    this.open += 1;
    return new EncodedBody(response, encoding, this.slots, () => (this.open -= 1), observer);
  }
}

/** A body that is compressed while it is sent. */
export class EncodedBody {
  private readonly encoder: Encoder;
  private readonly failed: Promise<never>;

  constructor(
    private readonly response: ServerResponse,
    encoding: ContentEncoding,
    private readonly slots: Semaphore,
    private readonly closed: () => void,
    private readonly observer: Parameters<typeof whenDrained>[1],
  ) {
    this.encoder = encoding === 'br' ? createBrotliCompress(streamed.br) : createGzip(streamed.gzip);
    this.failed = new Promise<never>((_, reject) => this.encoder.once('error', reject));
    this.failed.catch(() => {});
    this.encoder.on('data', (chunk: Buffer) => response.write(chunk));
  }

  /** Resolves once the client has room for more; at once where it has gone. */
  async write(bytes: Buffer, isLast = false): Promise<void> {
    let offset = 0;
    do {
      const step = bytes.subarray(offset, (offset += stepBytes));
      await this.slots.acquire();
      try {
        await Promise.race([
          this.failed,
          isLast && offset >= bytes.length ? ending(this.encoder, step) : writing(this.encoder, step),
        ]);
      } finally {
        this.slots.release();
      }
      // A client that does not read holds no slot.
      await whenDrained(this.response, this.observer);
    } while (offset < bytes.length && !this.response.destroyed);
  }

  /** Sends what the encoder keeps back until it has more. */
  async flush(): Promise<void> {
    await this.slots.acquire();
    try {
      await Promise.race([this.failed, new Promise<void>((resolve) => this.encoder.flush(resolve))]);
    } finally {
      this.slots.release();
    }
    await whenDrained(this.response, this.observer);
  }

  close(): void {
    this.encoder.destroy();
    this.closed();
  }
}

type Encoder = ReturnType<typeof createGzip> | ReturnType<typeof createBrotliCompress>;

const writing = (encoder: Encoder, step: Buffer): Promise<void> =>
  new Promise((resolve) => encoder.write(step, () => resolve()));

const ending = (encoder: Encoder, step: Buffer): Promise<void> =>
  new Promise((resolve) => {
    encoder.once('end', resolve).end(step);
  });
