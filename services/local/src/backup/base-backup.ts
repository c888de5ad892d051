import { Readable } from 'node:stream';
import type { Client, Connection, Submittable } from 'pg';
import { ConfigError } from '@granary/shared/config';

/** Kinds of messages in the answer to BASE_BACKUP, by their first byte. */
const archiveKind = 'n'.charCodeAt(0);
const dataKind = 'd'.charCodeAt(0);

const bufferBytes = 1024 * 1024;

/**
 * Keeps the log from now on for as long as the connection lives, which was opened with `replication: 'true'`. The slot
 * has no place on disk once the connection ends.
 */
export async function holdLog(replication: Client): Promise<void> {
  const slot = `granary_backup_${process.pid}`;
  await replication.query(`CREATE_REPLICATION_SLOT ${slot} TEMPORARY PHYSICAL (RESERVE_WAL true)`);
}

/**
 * The whole cluster without its log, as a tar archive, while it is being written to. Postgres checks the checksums of all
 * pages on the way. What it answers is consistent only after the log has been replayed, from the start of this call on
 * and at least to its end. `startLsn` is known once bytes have come.
 */
export function baseBackup(replication: Client, label: string): { archive: Readable; startLsn: () => string } {
  const options = `LABEL '${label}', CHECKPOINT 'fast', WAL false, WAIT false, MANIFEST 'no', TARGET 'client'`;
  const query = new CopyOut(`BASE_BACKUP (${options})`, unwrap());
  replication.query(query);
  return { archive: query.stream, startLsn: () => query.rows[0]?.[0] ?? '' };
}

/** Takes the bytes of the one archive out of the messages. */
function unwrap(): (message: Buffer) => Buffer | undefined {
  let archives = 0;
  return (message) => {
    if (message[0] === archiveKind && ++archives > 1) {
      throw new ConfigError('The cluster has tablespaces of its own, which a backup does not cover.');
    }
    // A copy: the parser uses its buffer again.
    return message[0] === dataKind ? Buffer.from(message.subarray(1)) : undefined;
  };
}

/** A statement of `pg` whose COPY data are a stream; the server waits while nobody reads. */
class CopyOut implements Submittable {
  readonly stream: Readable;
  /** What comes around the copy; the first row begins with the position in the log where the backup starts. */
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
        // Nothing but the end of the connection ends a copy.
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
