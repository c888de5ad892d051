import { hasCode } from '../errors.ts';
import type { CallOptions } from '../http/transport.ts';
import type { Field, SortField } from '../types.ts';

/** A page of records as the service answers it. */
export interface Page<T> {
  records: T[];
  /** How many records there are on all pages; null where they were not counted. */
  total: number | null;
  /** The next page begins with it; the last page has none. */
  next_cursor?: string;
  /** Fields of a filter that may be misspelt, where nothing was found. */
  hints?: Array<{ code: string; field: string; message: string }>;
}

/** Order and fields of the records of a collection, a view or a query. */
export interface Selection {
  sort: readonly string[];
  select: readonly string[] | undefined;
}

export interface PageOptions extends CallOptions {
  /** The page begins behind it: `next_cursor` of the one before. */
  cursor?: string | undefined;
  /** At most 10,000; 100 if nothing else is said. */
  limit?: number | undefined;
  /** Whether `total` is counted, which may take long. */
  count?: boolean | undefined;
}

/** Reads one page. */
export type PageSource<T> = (selection: Selection, page: PageOptions) => Promise<Page<T>>;

const pageSize = 500;

export interface RecordsOptions extends CallOptions {
  /** The source has a page size of its own, and takes no other. */
  hasOwnPageSize?: boolean;
}

/**
 * Records to be read: all of them by `for await`, page by page, or the first. Nothing is read before that. `sort`,
 * `select` and `limit` answer records with that set and leave these as they are.
 */
export class Records<T> implements AsyncIterable<T> {
  private readonly source: PageSource<unknown>;
  private readonly selection: Selection;
  private readonly most: number;
  private readonly options: RecordsOptions;

  constructor(
    source: PageSource<unknown>,
    options: RecordsOptions = {},
    selection: Selection = { sort: [], select: undefined },
    most = Infinity,
  ) {
    this.source = source;
    this.options = options;
    this.selection = selection;
    this.most = most;
  }

  /** In the order of these fields, each ascending, or descending with `-` before it. */
  sort(...sort: Array<SortField<T>>): Records<T> {
    return new Records(this.source, this.options, { ...this.selection, sort }, this.most);
  }

  /** These fields of each record only. */
  select<F extends Field<T>>(...select: F[]): Records<[F] extends [keyof T] ? Pick<T, F> : Partial<T>> {
    return new Records(this.source, this.options, { ...this.selection, select }, this.most);
  }

  /** The first so many of them. */
  limit(most: number): Records<T> {
    return new Records(this.source, this.options, this.selection, most);
  }

  async page(options: PageOptions = {}): Promise<Page<T>> {
    const { signal, timeoutMs } = this.options;
    const limit = this.most < (options.limit ?? Infinity) ? this.most : options.limit;
    return this.source(this.selection, { signal, timeoutMs, ...options, limit }) as Promise<Page<T>>;
  }

  /** All pages, each of which is read when the one before has been handled. */
  async *pages(size = pageSize): AsyncGenerator<Page<T>, void, undefined> {
    let cursor: string | undefined;
    let present = size;
    for (let left = this.most; left > 0;) {
      let page: Page<T>;
      try {
        page = (await this.source(this.selection, this.pageOptions(cursor, Math.min(present, left)))) as Page<T>;
      } catch (error) {
        // The documents are so large that fewer of them fit into an answer.
        if (!hasCode(error, 'RESULT_TOO_LARGE') || this.options.hasOwnPageSize || present === 1) throw error;
        present = Math.ceil(present / 2);
        continue;
      }
      if (page.records.length > left) page = { ...page, records: page.records.slice(0, left) };
      yield page;
      left -= page.records.length;
      cursor = page.next_cursor;
      if (cursor === undefined) return;
    }
  }

  private pageOptions(cursor: string | undefined, limit: number): PageOptions {
    const { signal, timeoutMs, hasOwnPageSize } = this.options;
    return { signal, timeoutMs, cursor, limit: hasOwnPageSize ? undefined : limit };
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for await (const { records } of this.pages()) yield* records;
  }

  /** All of them. What may be more than fits into memory is better read by `for await`. */
  async toArray(): Promise<T[]> {
    const all: T[] = [];
    for await (const { records } of this.pages()) all.push(...records);
    return all;
  }

  async first(): Promise<T | undefined> {
    return ((await this.source(this.selection, this.pageOptions(undefined, 1))) as Page<T>).records[0];
  }

  /** How many there are, whatever `limit` says. */
  async count(): Promise<number> {
    const options = { ...this.pageOptions(undefined, 1), count: true };
    return (await this.source(this.selection, options)).total!;
  }
}

/** The parameters of a page, as all public reads take them. */
export const pageParameters = ({ sort, select }: Selection, { cursor, limit, count = false }: PageOptions) => ({
  sort: sort.length === 0 ? undefined : sort.join(','),
  select: select?.join(','),
  cursor,
  limit,
  count: count ? 'exact' : 'none',
});
