import type { IncomingMessage } from 'node:http';
import { TtlCache } from '@granary/shared/concurrency/ttl-cache';
import { strongEtag } from '@granary/shared/http/etag';
import type { Answer, FullAnswer } from './answer';
import { etagOf, type Compression, type ContentEncoding } from './compression';

/** Encodings: br and gzip. */
const encodingsMax = 2;

/** An answer whose bytes never change. Each of its encodings is made once, when it is first requested. */
export class StaticAnswer {
  private readonly plain: FullAnswer;
  private readonly encoded = new TtlCache<Answer>({ max: encodingsMax, ttlMs: Infinity });

  constructor(
    private readonly compression: Pick<Compression, 'covers' | 'encodingFor' | 'compressOnce'>,
    { status, body, headers }: FullAnswer,
  ) {
    this.plain = { status, body, headers: { ...headers, ETag: strongEtag(body) } };
  }

  /**
   * The answer in the encoding that the client prefers; plain if its compression fails, which the next request repeats.
   */
  async for({ headers }: Pick<IncomingMessage, 'headers'>): Promise<Answer> {
    if (!this.compression.covers(this.plain)) return this.plain;
    const encoding = this.compression.encodingFor(headers['accept-encoding']);
    if (encoding === undefined) return this.plain;
    const encoded = await this.encoded.get(encoding, () => this.encode(encoding)).catch(() => undefined);
    return encoded ?? this.plain;
  }

  private async encode(encoding: ContentEncoding): Promise<Answer> {
    const { status, body, headers } = this.plain;
    return {
      status,
      body: await this.compression.compressOnce(body, encoding),
      headers: {
        ...headers,
        ETag: etagOf(headers['ETag']!, encoding),
        'Content-Encoding': encoding,
        Vary: 'Accept-Encoding',
      },
    };
  }
}
