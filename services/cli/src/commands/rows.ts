import type { App, Page } from '@granary/client';
import { jsonText } from '../exact-json.ts';
import { UsageError } from '../failure.ts';
import type { Invocation } from '../session/invocation.ts';
import { printList, type Columns } from '../terminal/table.ts';
import { shownRecords, type Values } from './options.ts';

type Row = Record<string, unknown>;

interface RowsOptions {
  /** Those of variables or parameters, which share the URL with `query`. */
  values?: Values | undefined;
  query: Record<string, string | undefined>;
  most?: number | undefined;
  /** The service decides how many a page has. */
  hasOwnPageSize?: boolean;
}

/** Prints the records that `path` answers in pages: to a person as tables, else each as a line of JSON. */
export async function printRows(
  { terminal, signal }: Invocation,
  app: App,
  path: string,
  { values = {}, query, most, hasOwnPageSize = false }: RowsOptions,
): Promise<void> {
  const taken = [...Object.keys(query), 'cursor', 'count', ...(hasOwnPageSize ? [] : ['limit'])];
  const name = taken.find((each) => Object.hasOwn(values, each));
  if (name !== undefined) throw new UsageError(`"${name}" is not the name of a value, but a part of every read`);
  const { Records } = await import('@granary/client');
  const records = new Records<Row>(
    (_, { cursor, limit }) => {
      const page = { cursor, count: 'none', ...(limit !== undefined && { limit }) };
      return app.request<Page<unknown>>('GET', path, { query: { ...values, ...query, ...page }, signal });
    },
    { hasOwnPageSize },
  );
  const shown = most ?? (terminal.isForPeople ? shownRecords : Infinity);
  let printed = 0;
  for await (const page of records.limit(shown).pages()) {
    for (const { message } of page.hints ?? []) terminal.say(message);
    printed += page.records.length;
    if (!terminal.isForPeople) for (const record of page.records) await terminal.print(jsonText(record));
    else if (page.records.length > 0 || page.next_cursor === undefined)
      await printList(terminal, page.records, columnsOf(page.records));
  }
  if (most === undefined && printed === shown) {
    terminal.say(`These are the first ${printed}: \`--limit all\` prints all of them.`);
  }
}

function columnsOf(rows: readonly Row[]): Columns<Row> {
  const names = new Set(rows.flatMap(Object.keys));
  return Object.fromEntries([...names].map((name) => [name, (row: Row) => row[name]]));
}
