import type { App, Page } from '@granary/client';
import { jsonText } from '../exact-json.ts';
import { UsageError } from '../failure.ts';
import type { Invocation } from '../session/invocation.ts';
import { printRecords, type JsonRecord } from '../terminal/record-table.ts';
import { shownRecords, type Values } from './options.ts';

interface RowsOptions {
  /** Values of variables or parameters, which share the URL with `query`. */
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
  const records = new Records<JsonRecord>(
    (_, { cursor, limit }) => {
      const page = { cursor, count: 'none', ...(limit !== undefined && { limit }) };
      return app.request<Page<unknown>>('GET', path, { query: { ...values, ...query, ...page }, signal });
    },
    { hasOwnPageSize },
  );
  const shown = most ?? (terminal.isForPeople ? shownRecords : Infinity);
  let printed = 0;
  let hasMore = false;
  for await (const page of records.limit(shown).pages()) {
    for (const { message } of page.hints ?? []) terminal.say(message);
    printed += page.records.length;
    hasMore = page.next_cursor !== undefined;
    if (!terminal.isForPeople) for (const record of page.records) await terminal.print(jsonText(record));
    else if (page.records.length > 0) await printRecords(terminal, page.records);
  }
  if (printed === 0) terminal.say('There are none.');
  if (most === undefined && hasMore) {
    terminal.say(`These are the first ${printed}: \`--limit all\` prints all of them.`);
  }
}
