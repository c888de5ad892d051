import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { invalid, ServiceError } from '@granary/shared/errors';
import type { Upload } from '../admission/transfers';
import { clientDisconnected } from '../http/body';

/**
 * The bytes of a file that is sent, decompressed, as they are asked for: nothing is read ahead but by the sockets. What
 * ends the request ends it too: the client has gone, it is too slow, or its place is needed.
 */
export class FileBody {
  private readonly source: Readable;
  private failure: ServiceError | undefined;
  private wake = () => {};

  /** Throws the error of a transfer that has been cancelled already. */
  constructor(
    private readonly incoming: IncomingMessage,
    private readonly transfer: Upload,
  ) {
    transfer.onCancel((error) => this.fail(error));
    this.source = encodingOf(incoming) === 'gzip' ? this.decompress() : incoming;
    this.source.on('readable', this.awaken).on('end', this.awaken);
    incoming.on('error', this.onGone).on('close', this.onGone).on('timeout', this.onIdle);
    transfer.start();
  }

  /** The next bytes, undefined behind the last. Throws CANCELLED, REQUEST_TIMEOUT, OVERLOADED, VALIDATION_FAILED. */
  async read(): Promise<Buffer | undefined> {
    for (;;) {
      if (this.failure) throw this.failure;
      const chunk = this.source.read() as Buffer | null;
      if (chunk) {
        this.transfer.moved(chunk.length);
        return chunk;
      }
      if (this.source.readableEnded) {
        this.transfer.ended();
        return undefined;
      }
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  /** Does work for which the client has to wait. Throws what has ended the request before. */
  async pausing<T>(work: () => Promise<T>): Promise<T> {
    if (this.failure) throw this.failure;
    this.transfer.blocked();
    try {
      return await this.transfer.whileWaiting(work);
    } finally {
      this.transfer.unblocked();
    }
  }

  /** Leaves what has not been read in the request. */
  close(): void {
    const { incoming, source } = this;
    source.off('readable', this.awaken).off('end', this.awaken);
    incoming.off('close', this.onGone).off('timeout', this.onIdle);
    if (source === incoming) return;
    incoming.unpipe();
    source.destroy();
  }

  private decompress(): Readable {
    const gunzip = createGunzip();
    gunzip.on('error', (error) => this.fail(invalid(`The body is not gzip: ${error.message}`)));
    return this.incoming.pipe(gunzip);
  }

  private fail(error: ServiceError): void {
    this.failure ??= error;
    this.awaken();
  }

  private readonly awaken = () => this.wake();
  private readonly onIdle = () => this.transfer.stalled();
  private readonly onGone = () => {
    if (!this.incoming.complete) this.fail(clientDisconnected());
  };
}

/** The encoding of a body. Throws UNSUPPORTED_MEDIA_TYPE for one that is not taken. */
export function encodingOf({ headers }: IncomingMessage): 'identity' | 'gzip' {
  const encoding = headers['content-encoding'] ?? 'identity';
  if (encoding === 'identity' || encoding === 'gzip') return encoding;
  const message = `A file may be sent as gzip, and not as ${encoding}`;
  throw new ServiceError('INVALID_ARGUMENT', 'UNSUPPORTED_MEDIA_TYPE', message, {
    details: { expected: ['identity', 'gzip'] },
  });
}
