import type { IncomingMessage } from 'node:http';
import { brotliDecompressSync, gunzipSync, inflateSync } from 'node:zlib';

/** Bytes of a refusal that are read while they pass. */
const peekedBytesMax = 64 * 1_024;

const decoders: Record<string, (bytes: Buffer, options: { maxOutputLength: number }) => Buffer> = {
  identity: (bytes) => bytes,
  gzip: gunzipSync,
  deflate: inflateSync,
  br: brotliDecompressSync,
};

/** Reads what an answer refuses a request with, while it is passed on. */
export class RefusalReader {
  private readonly chunks: Buffer[] = [];
  private bytes = 0;
  private readonly encoding: string;
  private readonly isRead: boolean;

  constructor({ statusCode = 0, headers }: Pick<IncomingMessage, 'statusCode' | 'headers'>) {
    this.encoding = headers['content-encoding'] ?? 'identity';
    this.isRead = statusCode >= 400 && /^application\/json\b/i.test(headers['content-type'] ?? '');
  }

  add(chunk: Buffer): void {
    this.bytes += chunk.length;
    if (this.isRead && this.bytes <= peekedBytesMax) this.chunks.push(chunk);
  }

  /** The code and the sentence of a whole answer; neither for one that has none. */
  read(): { code?: string; error?: string } {
    if (!this.isRead || this.bytes > peekedBytesMax) return {};
    try {
      const text = decoders[this.encoding]?.(Buffer.concat(this.chunks), {
        maxOutputLength: peekedBytesMax,
      }).toString();
      const { code, error } = JSON.parse(text ?? '') as Record<string, unknown>;
      return typeof code === 'string' && typeof error === 'string' ? { code, error } : {};
    } catch {
      return {};
    }
  }
}
