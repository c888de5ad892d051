import type { ServerResponse } from 'node:http';
import type { Download } from '../admission/transfers';
import { clientDisconnected } from '../http/body';
import type { EncodedBody } from '../http/compression';
import { whenDrained } from '../http/drained';

/** A sign of life for a client that gets nothing for `everyMs`; without `bytes` there is none. */
export interface Heartbeat {
  bytes: Buffer | undefined;
  everyMs: number;
}

/** Sends the bytes of an export, compressed or not, and tells its transfer how fast the client reads. */
export class ExportSink {
  private sentAtMs = performance.now();

  constructor(
    private readonly outgoing: ServerResponse,
    private readonly transfer: Download,
    private readonly encoded: EncodedBody | undefined,
    private readonly heartbeat: Heartbeat,
  ) {}

  /** Resolves once the client has room for more. Rejects with CANCELLED where it has gone. */
  async write(bytes: Buffer): Promise<void> {
    if (bytes.length === 0) return;
    this.transfer.moved(bytes.length);
    if (this.encoded) {
      await this.encoded.write(bytes);
    } else {
      this.outgoing.write(bytes);
      await whenDrained(this.outgoing, this.transfer);
    }
    this.sentAtMs = performance.now();
    if (this.outgoing.destroyed) throw clientDisconnected();
  }

  /** Settles as `work` does, during which nothing else may be written. Until then the client gets the heartbeats. */
  async during<T>(work: Promise<T>): Promise<T> {
    const { bytes, everyMs } = this.heartbeat;
    if (!bytes) return work;
    // It may fail while a heartbeat is sent.
    work.catch(() => {});
    for (;;) {
      const leftMs = this.sentAtMs + everyMs - performance.now();
      if (leftMs > 0 && (await settlesWithin(work, leftMs))) return work;
      await this.write(bytes);
      await this.encoded?.flush();
    }
  }

  /** Sends the last bytes. Resolves once the client has taken all, or has gone. */
  async end(bytes: Buffer): Promise<void> {
    if (this.encoded) await this.encoded.write(bytes, true);
    else await this.write(bytes);
    this.transfer.ended();
    await new Promise<void>((resolve) => {
      this.outgoing.once('close', resolve).end();
      if (this.outgoing.destroyed) resolve();
    });
  }

  close(): void {
    this.encoded?.close();
  }
}

const settlesWithin = (work: Promise<unknown>, ms: number): Promise<boolean> =>
  new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), ms);
    const settled = () => {
      clearTimeout(timer);
      resolve(true);
    };
    work.then(settled, settled);
  });
