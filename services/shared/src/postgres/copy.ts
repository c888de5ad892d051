import { runSliced, type Task } from '../concurrency/time-slicing';
import type { BinaryWriter } from './wire/binary';
import { beginCopyData, endCopyData } from './wire/message-writer';
import { sql, type Sql } from './sql';

/** Rows are sent in messages of about this size. */
const messageBytes = 64 * 1024;
/** The bytes that are allocated for a message beyond that, so that the row that fills it seldom makes it grow. */
const spareBytes = 4 * 1024;

/** The signature of the binary format, no flags, no extension. */
const fileHead = Buffer.from('PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0', 'latin1');

/** A COPY as a step of a pipeline: its statement, and its rows as messages of the protocol. */
export interface CopyIn {
  statement: Sql;
  messages: readonly Buffer[];
}

/**
 * A COPY of rows into a table, the cheapest way to insert many: no plan, no parameters, whole pages at a time. The
 * format is binary, so bytes are sent as they are. `writeRow` writes each of the named columns as one field. Runs
 * sliced, with priority over other long tasks, because a COPY is part of a transaction.
 */
export async function copyInto<T>(
  table: Sql,
  columns: { names: Sql; count: number },
  rows: readonly T[],
  writeRow: (writer: BinaryWriter, row: T) => void,
): Promise<CopyIn> {
  return {
    statement: sql`copy ${table} (${columns.names}) from stdin (format binary)`,
    messages: await runSliced(messageSteps(rows, columns.count, writeRow), { priority: true }),
  };
}

/** Yields after each message. */
function* messageSteps<T>(
  rows: readonly T[],
  columnCount: number,
  writeRow: (writer: BinaryWriter, row: T) => void,
): Task<Buffer[]> {
  const messages: Buffer[] = [];
  let writer = beginMessage();
  writer.raw(fileHead);
  for (const row of rows) {
    if (writer.length >= messageBytes) {
      messages.push(endCopyData(writer));
      yield;
      writer = beginMessage();
    }
    writer.int16(columnCount);
    writeRow(writer, row);
  }
  writer.int16(-1);
  messages.push(endCopyData(writer));
  return messages;
}

const beginMessage = () => beginCopyData(messageBytes + spareBytes);
