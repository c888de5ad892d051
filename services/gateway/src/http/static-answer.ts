import type { IncomingMessage } from 'node:http';
import { strongEtag } from '@granary/shared/http/etag';
import type { Answer, FullAnswer } from './answer';
import { compressOnce, etagOf, type Compression, type ContentEncoding } from './compression';

/** An answer whose bytes never change: each of its encodings is made once, when it is first asked for. */
export class StaticAnswer {
  private readonly plain: FullAnswer;
  private readonly encoded = new Map<ContentEncoding, Promise<Answer>>();

  constructor(
    private readonly compression: Compression,
    { status, body, headers }: FullAnswer,
  ) {
    this.plain = { status, body, headers: { ...headers, ETag: strongEtag(body) } };
  }

  async for({ headers }: Pick<IncomingMessage, 'headers'>): Promise<Answer> {
    if (!this.compression.covers(this.plain)) return this.plain;
    const encoding = this.compression.encodingFor(headers['accept-encoding']);
    if (encoding === undefined) return this.plain;
    let encoded = this.encoded.get(encoding);
    if (!encoded) {
      encoded = this.encode(encoding);
      this.encoded.set(encoding, encoded);
    }
    return encoded;
  }

  private async encode(encoding: ContentEncoding): Promise<Answer> {
    const { status, body, headers } = this.plain;
    return {
      status,
      body: await compressOnce(body, encoding),
      headers: {
        ...headers,
        ETag: etagOf(headers['ETag']!, encoding),
        'Content-Encoding': encoding,
        Vary: 'Accept-Encoding',
      },
    };
  }
}
