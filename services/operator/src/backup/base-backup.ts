import { Readable } from 'node:stream';
import type { Client, Connection, Submittable } from 'pg';
import { ConfigError } from '@granary/shared/config';

/** Message kinds in the response to BASE_BACKUP, by their first byte. */
const archiveKind = 'n'.charCodeAt(0);
const dataKind = 'd'.charCodeAt(0);

const bufferBytes = 1024 * 1024;

/**
 * Retains the log from now on, as long as the connection, opened with `replication: 'true'`, is open. The temporary
 * slot is dropped with the connection.
 */
export async function retainLog(replication: Client): Promise<void> {
  const slot = `granary_backup_${process.pid}`;
  await replication.query(`CREATE_REPLICATION_SLOT ${slot} TEMPORARY PHYSICAL (RESERVE_WAL true)`);
}

/**
 * Streams the whole cluster without its log as a tar archive, while it is in use. Postgres verifies the checksums of
 * all pages. The archive is consistent only after replaying the log from the start of this call at least to its end.
 * `startLsn` is available once the first bytes have arrived.
 */
export function baseBackup(replication: Client, label: string): { archive: Readable; startLsn: () => string } {
  const options = `LABEL '${label}', CHECKPOINT 'fast', WAL false, WAIT false, MANIFEST 'no', TARGET 'client'`;
  const query = new CopyOut(`BASE_BACKUP (${options})`, unwrap());
  replication.query(query);
  return { archive: query.stream, startLsn: () => query.rows[0]?.[0] ?? '' };
}

/** Extracts the bytes of the only archive from the messages. */
function unwrap(): (message: Buffer) => Buffer | undefined {
  let archives = 0;
  return (message) => {
    if (message[0] === archiveKind && ++archives > 1) {
      throw new ConfigError('The cluster has tablespaces of its own, which a backup does not cover.');
    }
    // A copy, because the parser reuses its buffer.
    return message[0] === dataKind ? Buffer.from(message.subarray(1)) : undefined;
  };
}

/** A `pg` statement with its COPY data as a stream; backpressure pauses the server. */
class CopyOut implements Submittable {
  readonly stream: Readable;
  /** Rows around the COPY data; the first one begins with the log position at which the backup starts. */
  readonly rows: string[][] = [];
  private connection: Connection | undefined;
  private isOver = false;
  private failure: Error | undefined;

  constructor(
    private readonly text: string,
    private readonly take: (message: Buffer) => Buffer | undefined,
  ) {
    this.stream = new Readable({
      highWaterMark: bufferBytes,
      read: () => void this.connection?.stream.resume(),
      destroy: (error, done) => {
        // A COPY can be aborted only by closing the connection.
        if (!this.isOver) this.connection?.stream.destroy();
        done(error);
      },
    });
  }

  submit(connection: Connection): void {
    this.connection = connection;
    connection.query(this.text);
  }

  handleCopyData({ chunk }: { chunk: Buffer }): void {
    if (this.failure !== undefined || this.stream.destroyed) return;
    try {
      const bytes = this.take(chunk);
      if (bytes !== undefined && !this.stream.push(bytes)) this.connection?.stream.pause();
    } catch (error) {
      this.failure = error as Error;
      this.stream.destroy(this.failure);
    }
  }

  handleError(error: Error): void {
    this.failure ??= error;
    this.isOver = true;
    this.stream.destroy(this.failure);
  }

  handleReadyForQuery(): void {
    this.isOver = true;
    if (this.failure === undefined) this.stream.push(null);
  }

  handleDataRow({ fields }: { fields: string[] }): void {
    this.rows.push(fields);
  }

  handleRowDescription(): void {}
  handleCommandComplete(): void {}
  handleEmptyQuery(): void {}
}
