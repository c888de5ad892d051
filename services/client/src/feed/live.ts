import { GranaryError, hasCode, isPassing } from '../errors.ts';
import { Export } from '../files/export.ts';
import { appPath, features, type AppContext } from '../http/app-context.ts';
import { backoffMs, sleep } from '../http/waiting.ts';
import type { Field, Filter } from '../types.ts';
import { ChangeFeed, type ChangesOptions } from './changes.ts';
import type { ChangeEvent, Put, Remove } from './events.ts';

export interface FollowOptions<D> {
  find?: Filter<D> | undefined;
  select?: ReadonlyArray<Field<D>> | undefined;
  signal?: AbortSignal | undefined;
}

/** The collection or the view that is followed. */
export type FollowSource = { collection: string } | { view: string };

/** Is told after each commit that has changed the map, and after it was read anew. */
export type LiveListener = () => void;

interface RowPage<D> {
  changes: Array<ChangeEvent<D>>;
  cursor: string;
  head: number;
  more: boolean;
}

const rowsOfPage = 1_000;
/** A view that is built again and again is not read more often than that. */
const reloadDelayMs = 1_000;

/**
 * The documents of a collection, or the rows of a live view, by their ids: a map that stays right. It is read once, at
 * one height, and changes from then on with each commit as a whole.
 */
export class Live<D> implements ReadonlyMap<string, D> {
  /** `loading` until it is whole; `waiting` while there is no connection, and what it has is as old as that. */
  get status(): 'loading' | 'live' | 'waiting' | 'closed' {
    if (this.isClosed) return 'closed';
    if (this.isLoading) return 'loading';
    return this.feed?.status === 'open' ? 'live' : 'waiting';
  }

  /** The last commit that the map has. */
  height = 0;
  /** Resolves once the map is whole. Rejects with the error that ends it before. */
  readonly ready: Promise<void>;
  /** Resolves once it is closed. Rejects with the error that has ended it. */
  readonly ended: Promise<void>;
  private readonly context: AppContext;
  private readonly source: FollowSource;
  private readonly options: FollowOptions<D>;
  private readonly controller = new AbortController();
  private readonly listeners = new Set<LiveListener>();
  private documents = new Map<string, D>();
  private feed: ChangeFeed<D> | undefined;
  private isLoading = true;
  private isClosed = false;
  private open: Array<Put<D> | Remove> = [];

  constructor(context: AppContext, source: FollowSource, options: FollowOptions<D> = {}) {
    this.context = context;
    this.source = source;
    this.options = options;
    if (options.signal?.aborted) this.close();
    options.signal?.addEventListener('abort', this.onAbort, { once: true });
    let onReady!: () => void;
    const loaded = new Promise<void>((resolve) => (onReady = resolve));
    this.ended = this.run(onReady);
    const closed = this.ended.then(() => Promise.reject(this.controller.signal.reason as Error));
    this.ready = Promise.race([loaded, closed]);
    // A caller that waits for one of them only is not ended by the other.
    for (const promise of [this.ready, this.ended]) promise.catch(() => {});
  }

  /** Calls the listener after each change of the map; answers what ends that. */
  onChange(listener: LiveListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  close(): void {
    this.controller.abort();
  }

  private readonly onAbort = (): void => this.close();

  private async run(onReady: () => void): Promise<void> {
    const { signal } = this.controller;
    let wasReady = false;
    try {
      for (let failures = 0; ; failures += 1) {
        try {
          const since = 'view' in this.source ? await this.loadRows() : await this.loadDocuments();
          this.isLoading = false;
          wasReady = true;
          onReady();
          this.tell();
          failures = 0;
          await this.follow(since);
        } catch (error) {
          // A view was built anew while it was read; or the service is away, which it was not at first.
          if (!hasCode(error, 'CURSOR_GONE') && !(wasReady && isPassing(error))) throw error;
        }
        this.isLoading = true;
        this.open = [];
        await sleep(Math.max(reloadDelayMs, backoffMs(failures, undefined)), signal);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      this.isClosed = true;
      this.options.signal?.removeEventListener('abort', this.onAbort);
      this.controller.abort();
    }
  }

  /** Reads all documents; what was there before is shown until then. Resolves to where the feed begins. */
  private async loadDocuments(): Promise<string> {
    const { find, select } = this.options;
    const all = new Export<D & { id: string }>(this.context, (this.source as { collection: string }).collection, {
      find: find as Filter<D & { id: string }>,
      // Documents go by their ids, which a selection may leave out.
      select: select && [...new Set<Field<D>>(['id', ...select])],
      signal: this.controller.signal,
    });
    const documents = new Map<string, D>();
    for await (const document of all) documents.set(document.id, this.selected(document));
    this.documents = documents;
    this.height = all.height!;
    return String(all.height);
  }

  private selected(document: D & { id: string }): D {
    const { select } = this.options;
    if (!select || (select as readonly string[]).includes('id')) return document;
    const { id: _, ...rest } = document;
    return rest as D;
  }

  private async loadRows(): Promise<string> {
    this.refuseFilter();
    const { view } = this.source as { view: string };
    const documents = new Map<string, D>();
    for (let since = '0'; ;) {
      const page = await this.context.transport.json<RowPage<D>>({
        method: 'GET',
        path: appPath(this.context, 'changes'),
        query: { view, since, limit: rowsOfPage, select: this.options.select?.join(',') },
        signal: this.controller.signal,
        feature: features.changes,
      });
      for (const change of page.changes) if (change.event !== 'reset') apply(documents, change);
      since = page.cursor;
      if (page.more) continue;
      this.documents = documents;
      this.height = page.head;
      return since;
    }
  }

  private refuseFilter(): void {
    if (!this.options.find) return;
    throw new GranaryError('The rows of a view are followed without a filter: the view may have one', {
      code: 'VALIDATION_FAILED',
      details: { find: ['is for collections only'] },
    });
  }

  /** Follows until the feed cannot go on from where it is. */
  private async follow(since: string): Promise<void> {
    const { find, select } = this.options;
    const common: ChangesOptions<D> = { since, signal: this.controller.signal };
    if (find) common.find = find;
    if (select) common.select = select;
    this.feed = new ChangeFeed<D>(this.context, { ...common, ...this.source }, true);
    for await (const event of this.feed.withNotices()) {
      if (event.event === 'reset') return;
      if (event.event === 'catalog') continue;
      if (event.event !== 'progress') this.open.push(event);
      if (event.event === 'progress' || event.last) this.commit();
    }
  }

  /** Applies the changes of a commit at once. */
  private commit(): void {
    const changes = this.open;
    if (changes.length === 0 || this.controller.signal.aborted) return;
    this.open = [];
    for (const change of changes) apply(this.documents, change);
    this.height = changes.at(-1)!.height;
    this.tell();
  }

  private tell(): void {
    for (const listener of this.listeners) {
      try {
        listener();
      } catch (error) {
        // It is an error of the program, and must not end the map.
        setTimeout(() => {
          throw error;
        });
      }
    }
  }

  get size(): number {
    return this.documents.size;
  }

  get(id: string): D | undefined {
    return this.documents.get(id);
  }

  has(id: string): boolean {
    return this.documents.has(id);
  }

  keys(): MapIterator<string> {
    return this.documents.keys();
  }

  values(): MapIterator<D> {
    return this.documents.values();
  }

  entries(): MapIterator<[string, D]> {
    return this.documents.entries();
  }

  forEach(callback: (document: D, id: string, map: ReadonlyMap<string, D>) => void): void {
    for (const [id, document] of this.documents) callback(document, id, this);
  }

  [Symbol.iterator](): MapIterator<[string, D]> {
    return this.documents.entries();
  }
}

function apply<D>(documents: Map<string, D>, change: Put<D> | Remove): void {
  if (change.event === 'put') {
    // The text of an old version may be gone; a newer one or its removal follows.
    if (change.document) documents.set(change.id, change.document);
    else documents.delete(change.id);
  } else if (change.id !== undefined) documents.delete(change.id);
  else if (change.reason === 'dropped') documents.clear();
}
