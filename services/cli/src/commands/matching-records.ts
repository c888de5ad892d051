import type { App, Page, Records } from '@granary/client';
import type { Filter } from '../filters/filter.ts';
import type { JsonRecord } from '../terminal/record-table.ts';
import type { Terminal } from '../terminal/terminal.ts';

export interface RecordsQuery {
  collection: string;
  filter: Filter;
  sort?: readonly string[] | undefined;
  select?: readonly string[] | undefined;
  /** The first page begins behind it. */
  cursor?: string | undefined;
  /** All versions of each document. */
  history?: boolean | undefined;
  /** Also those that are deleted softly. */
  deleted?: boolean | undefined;
  /** Whether there is no key, so that it is a read of everybody. */
  isPublic: boolean;
  signal: AbortSignal;
}

/** The records that meet a filter, whose numbers are compared with all their digits. */
export async function matchingRecords(app: App, query: RecordsQuery): Promise<Records<JsonRecord>> {
  const { Records } = await import('@granary/client');
  const readPage = await (query.isPublic ? publicPages(app, query) : pages(app, query));
  return new Records<JsonRecord>((_, page) => readPage({ ...page, cursor: page.cursor ?? query.cursor }), {
    signal: query.signal,
  });
}

interface PageOptions {
  cursor?: string | undefined;
  limit?: number | undefined;
  count?: boolean | undefined;
}

type ReadPage = (page: PageOptions) => Promise<Page<unknown>>;

async function publicPages(app: App, { collection, filter, ...query }: RecordsQuery): Promise<ReadPage> {
  const { publicFilter } = await import('../filters/filter.ts');
  const { sort = [], select, history, deleted, signal } = query;
  const options = { history, deleted: deleted ? ('include' as const) : undefined, signal };
  const records = app
    .collection(collection)
    .find(publicFilter(filter), options)
    .sort(...sort);
  return (page) => (select ? records.select(...select).page(page) : records.page(page));
}

/** The filter is sent as text: JavaScript's numbers have fewer digits than those of a filter may have. */
async function pages(app: App, query: RecordsQuery): Promise<ReadPage> {
  const { filterText, presentFilterText } = await import('../filters/filter.ts');
  const { collection, filter, sort, select, history = false, deleted = false, signal } = query;
  const find = history || deleted ? (filterText(filter) ?? '{}') : presentFilterText(filter);
  const common = { root: `${app.id}::${collection}`, sort, select, include_history: history };
  return ({ cursor, limit, count }) => {
    const rest = JSON.stringify({ ...common, cursor, limit, count: count ? 'exact' : 'none' });
    return app.request('POST', '/list', { jsonText: `{"find":${find},${rest.slice(1)}`, signal });
  };
}

/** Says what may be wrong with a filter that nothing meets. */
export async function sayHints(terminal: Terminal, page: Page<unknown>, filter: Filter): Promise<void> {
  // The condition on `deleted` is ours: nobody has typed it.
  const hints = (page.hints ?? []).filter(({ field }) => field !== 'deleted');
  const { typeHint } = await import('../filters/filter.ts');
  const byType = typeHint(
    filter,
    hints.map(({ field }) => field),
  );
  for (const hint of [...hints.map(({ message }) => message), ...(byType === undefined ? [] : [byType])]) {
    terminal.say(`${terminal.styledMessage('yellow', 'hint:')} ${hint}`);
  }
}
