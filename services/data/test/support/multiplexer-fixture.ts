import { Client, type DatabaseError } from 'pg';
import { pino } from 'pino';
import { Multiplexer, type MultiplexerOptions } from '../../src/postgres/multiplexer';
import type { Row, RowReader } from '../../src/postgres/rows';
import type { StatementValue } from '@granary/shared/postgres/wire/values';

export type Texts = (string | null)[][];

/** Reads all rows as texts. */
export function allTexts(columns: number): RowReader<Texts> {
  const found: Texts = [];
  return {
    row: (row) => found.push(Array.from({ length: columns }, (_, at) => (row.isNull(at) ? null : row.text(at)))),
    end: () => found,
  };
}

/** Reads one row of one column. */
export function oneText(): RowReader<string | null | undefined> {
  let found: string | null | undefined;
  return { row: (row: Row) => void (found = row.isNull(0) ? null : row.text(0)), end: () => found };
}

export const readOne = (multiplexer: Multiplexer, text: string, values: readonly StatementValue[] = []) =>
  multiplexer.read(text, values, oneText());

/** A multiplexer, and the messages that it logs. */
export function openMultiplexer(
  url: string,
  options: Partial<MultiplexerOptions> = {},
): { multiplexer: Multiplexer; logged: string[] } {
  const logged: string[] = [];
  const log = pino({}, { write: (line: string) => void logged.push((JSON.parse(line) as { msg: string }).msg) });
  return { multiplexer: new Multiplexer({ url, size: 2, applicationName: 'multiplexer', log, ...options }), logged };
}

/** Runs statements in a connection of its own. */
export async function run(url: string, ...statements: string[]): Promise<Record<string, unknown>[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    let found: Record<string, unknown>[] = [];
    for (const text of statements) found = (await client.query<Record<string, unknown>>(text)).rows;
    return found;
  } finally {
    await client.end();
  }
}

/** Everything that an error of Postgres says, but for the stack. */
export function said(error: unknown): Record<string, unknown> {
  const { message, name } = error as DatabaseError;
  return { ...(error as object), message, name };
}
