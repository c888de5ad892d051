import type { ServerResponse } from 'node:http';
import type { Download } from '../admission/transfers';
import { clientDisconnected } from '../http/body';
import type { EncodedBody } from '../http/compression';
import { whenDrained } from '../http/drained';

/** Sends the bytes of an export, compressed or not, and tells its transfer how fast the client reads. */
export class ExportSink {
  constructor(
    private readonly outgoing: ServerResponse,
    private readonly transfer: Download,
    private readonly encoded: EncodedBody | undefined,
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
    if (this.outgoing.destroyed) throw clientDisconnected();
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
