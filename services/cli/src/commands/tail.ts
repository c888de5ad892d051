import type { ChangeFeed, JsonObject } from '@granary/client';
import type { Command } from 'commander';
import { jsonText, parseAsWritten } from '../exact-json.ts';
import { UsageError } from '../failure.ts';
import type { Filter } from '../filters/filter.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { eventLine } from '../terminal/event-line.ts';
import { checkCollection, fieldsArgument, filterOf, filtersHelp } from './filter-arguments.ts';
import { matchingRecords, sayHints } from './matching-records.ts';

interface TailOptions {
  since?: string;
  view?: string;
  select?: string;
  latest?: boolean;
  ids?: boolean;
}

/** How often the state of the connection is looked at. */
const statusEveryMs = 200;

export function addTailCommand(program: Command): void {
  program
    .command('tail')
    .description('follow what changes: in the app, in a collection, or in a live view')
    .argument('[collection]', 'all of them if none is named; names with commas are several')
    .argument('[filters...]', filtersHelp)
    .option('--since <place>', 'now, a height (0: from the beginning), or the cursor of a change', 'now')
    .option('--view <view>', 'the rows of this view')
    .option('--select <fields>', 'these fields only')
    .option('--latest', 'each document once in a step, in its newest version')
    .option('--ids', 'ids without documents')
    .action(action<TailOptions>(tail));
}

async function tail(call: Invocation<TailOptions>): Promise<void> {
  const [collection, args] = call.args<[string | undefined, string[]]>();
  const { terminal, options, signal } = call;
  const { view, since } = options;
  checkCollection(collection);
  if (view !== undefined && (collection !== undefined || options.latest)) {
    const other = collection === undefined ? '--latest' : `the collection "${collection}"`;
    throw new UsageError(`--view and ${other} do not go together`, 'A view is followed by itself.');
  }
  const filter = await filterOf(terminal, args);
  const { filterText } = await import('../filters/filter.ts');
  const app = await call.app({ parse: parseAsWritten });
  await checkFilterMeans(call, collection, filter);
  const feed = app.changes<JsonObject>({
    collection,
    view,
    since,
    find: filterText(filter),
    select: fieldsArgument('--select', options.select),
    mode: options.latest ? 'latest' : undefined,
    documents: options.ids ? false : undefined,
    signal,
  });
  const source = view ?? collection ?? `all collections of ${app.id}`;
  if (terminal.isForPeople) terminal.say(`Following ${source} from ${since} on. Ctrl-C ends it.`);
  await follow(call, feed);
}

/** A field that is misspelt would be waited for in vain. */
async function checkFilterMeans(call: Invocation, collection: string | undefined, filter: Filter): Promise<void> {
  const isEmpty = filter.conditions.length + filter.texts.length === 0;
  const isOfOne = collection !== undefined && !collection.includes(',');
  if (isEmpty || !isOfOne || (await call.target()).appKey === undefined) return;
  const { signal } = call;
  const app = await call.app();
  const records = await matchingRecords(app, { collection, filter, deleted: true, isPublic: false, signal });
  // A hint is all that is wanted of it: what is wrong with the filter is the feed's to say.
  const page = await records.page({ limit: 1 }).catch(() => signal.throwIfAborted());
  if (page?.records.length === 0) await sayHints(call.terminal, page, filter);
}

/** Prints the changes until Ctrl-C; then says how to go on. */
async function follow({ terminal, signal }: Invocation, feed: ChangeFeed<JsonObject & { id: string }>): Promise<void> {
  const watch = watchStatus(feed, (line) => terminal.say(terminal.styledMessage('yellow', line)));
  try {
    for await (const event of feed) {
      await terminal.print(terminal.isForPeople ? eventLine(terminal, event) : jsonText(event));
      if (event.event !== 'reset') continue;
      // The error that follows says why, and what to do.
      terminal.complain(terminal.styledMessage('red', 'RESET: the feed cannot go on from its cursor.'));
    }
  } catch (error) {
    if (signal.aborted && feed.cursor !== undefined) {
      const { resumption } = await import('../session/resumption.ts');
      terminal.complain(`Go on with: ${resumption(process.argv.slice(2), { '--since': feed.cursor })}`);
    }
    throw error;
  } finally {
    clearInterval(watch);
  }
}

/** Says when the connection is lost, and when there is one again. */
function watchStatus(feed: Pick<ChangeFeed<never>, 'status'>, say: (line: string) => void): NodeJS.Timeout {
  let isLost = false;
  return setInterval(() => {
    if (feed.status === 'waiting' && !isLost) say('The connection is lost. It is tried again until it succeeds.');
    else if (feed.status === 'open' && isLost) say('The connection is there again. Nothing was missed.');
    isLost = feed.status === 'waiting' || (isLost && feed.status !== 'open');
  }, statusEveryMs);
}
