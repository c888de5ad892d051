import type { Records } from '@granary/client';
import type { Command } from 'commander';
import { jsonText, parseAsWritten } from '../exact-json.ts';
import { UsageError } from '../failure.ts';
import type { Filter } from '../filters/filter.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { printRecords, type JsonRecord } from '../terminal/record-table.ts';
import { checkCollection, fieldsArgument, filterOf, filtersHelp } from './filter-arguments.ts';
import { matchingRecords, sayHints } from './matching-records.ts';

interface QueryOptions {
  sort?: string;
  select?: string;
  limit?: string;
  cursor?: string;
  count?: boolean;
  history?: boolean;
  deleted?: boolean;
}

/** A person is shown so many records if nothing else is said; a pipe is never cut. */
const shownLimit = 100;

export function addQueryCommand(program: Command): void {
  program
    .command('query')
    .description('find documents')
    .argument('<collection>')
    .argument('[filters...]', filtersHelp)
    .option('--sort <fields>', 'in this order; a field with - before it descends')
    .option('--select <fields>', 'these fields only')
    .option('--limit <number>', `so many at most, or all; ${shownLimit} on a terminal if nothing else is said`)
    .option('--cursor <cursor>', 'go on where a query with a limit ended')
    .option('--count', 'print how many there are')
    .option('--history', 'all versions of each document')
    .option('--deleted', 'also those that are deleted softly')
    .action(action<QueryOptions>(query));
}

async function query(call: Invocation<QueryOptions>): Promise<void> {
  const [collection, args] = call.args<[string, string[]]>();
  const { terminal, options, signal } = call;
  checkCollection(collection);
  const limit = limitOf(options.limit) ?? (terminal.isForPeople ? shownLimit : Infinity);
  const filter = await filterOf(terminal, args);
  const { cursor, history, deleted } = options;
  const sort = fieldsArgument('--sort', options.sort);
  const select = fieldsArgument('--select', options.select);
  const isPublic = (await call.target()).appKey === undefined;
  const app = await call.app({ parse: parseAsWritten });
  const request = { collection, filter, sort, select, cursor, history, deleted, isPublic, signal };
  const records = await matchingRecords(app, request);
  if (options.count) {
    const page = await records.page({ limit: 1, count: true });
    if (page.total === 0) await sayHints(terminal, page, filter);
    return terminal.print(String(page.total));
  }
  await printPages(call, records.limit(limit), filter);
}

/** Prints page by page: the next one is read when this one is written. Says how to go on where there is more. */
async function printPages(
  { terminal, options, signal }: Invocation<QueryOptions>,
  records: Records<JsonRecord>,
  filter: Filter,
): Promise<void> {
  const limit = limitOf(options.limit);
  let printed = 0;
  let next = options.cursor;
  try {
    for await (const page of records.pages()) {
      if (next === undefined && page.records.length === 0) {
        await sayHints(terminal, page, filter);
        if (terminal.isForPeople) terminal.say('Nothing meets the filter.');
      } else if (terminal.isForPeople) await printRecords(terminal, page.records);
      else for (const record of page.records) await terminal.print(jsonText(record));
      next = page.next_cursor;
      printed += page.records.length;
    }
  } catch (error) {
    const left = limit === undefined || limit === Infinity ? undefined : limit - printed;
    if (signal.aborted && next !== undefined) terminal.complain(`Go on with: ${await resumedAt(next, left)}`);
    throw error;
  }
  if (next !== undefined) {
    terminal.say(`There are more: --limit all prints them, or go on with: ${await resumedAt(next)}`);
  }
}

/** The command that goes on at a cursor, with `left` as its limit where that is another one. */
async function resumedAt(cursor: string, left?: number): Promise<string> {
  const { resumption } = await import('../session/resumption.ts');
  const limit = left === undefined ? {} : { '--limit': String(left) };
  return resumption(process.argv.slice(2), { '--cursor': cursor, ...limit });
}

function limitOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (text === 'all') return Infinity;
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new UsageError(`--limit "${text}" is not a number of records`, 'For example --limit 20, or --limit all.');
}
