import { checkedFilter } from './documents/filter.ts';
import { pageParameters, Records, type Page } from './documents/records.ts';
import { publicParameters } from './documents/public-filter.ts';
import { GranaryError, hasCode } from './errors.ts';
import { ChangeFeed, type ChangesOptions } from './feed/changes.ts';
import { Live, type FollowOptions } from './feed/live.ts';
import type { ByteSource } from './files/bytes-source.ts';
import { Export, exportFile, type ExportedFile, type ExportFileOptions, type ExportOptions } from './files/export.ts';
import { importRecords, type ImportOptions, type ImportReport } from './files/import.ts';
import { appPath, type AppContext } from './http/app-context.ts';
import type { CallOptions, WriteOptions } from './http/transport.ts';
import type { Filter, Patch, Stored, Written } from './types.ts';

/** A document with its version, which grows by one with each write. */
export interface Versioned<D> {
  document: Stored<D>;
  version: number;
}

export interface ConditionalOptions extends WriteOptions {
  /** Only if this is the present version; else PRECONDITION_FAILED, and nothing is changed. */
  ifVersion?: number | undefined;
}

export interface PutOptions extends ConditionalOptions {
  /** Only if there is no document with this id. */
  ifAbsent?: boolean | undefined;
  /** JSON that is sent as it is in place of the document, so that numbers keep their digits. */
  jsonText?: string | undefined;
}

export interface PatchOptions extends ConditionalOptions {
  /** JSON that is sent as it is in place of the changes. */
  jsonText?: string | undefined;
}

export interface StoredBatch {
  /** In the order of the documents. */
  ids: string[];
  /** The height of the commit that has all of them. */
  height: number;
  ticket_id: string;
}

export interface FindOptions extends CallOptions {
  /** All versions of each document. */
  history?: boolean | undefined;
  /** Also those that are deleted softly, with `deleted: true`. */
  deleted?: 'include' | undefined;
}

/** Members of a definition, such as a schema, access or prices; `/docs` describes each. */
export type Definition = Record<string, unknown>;

/** An index over `field_name`, or over the `fields` of a composite one. */
export interface IndexDefinition extends Definition {
  name: string;
  index_type:
    'btree' | 'hash' | 'fulltext' | 'composite' | 'price' | 'encrypted' | 'string' | 'number' | 'boolean' | 'date';
}

/** A collection of documents, which are of the type `D` besides their `id`. */
export class Collection<D extends object> {
  readonly name: string;
  private readonly context: AppContext;

  constructor(context: AppContext, name: string) {
    this.context = context;
    this.name = name;
  }

  /** The document with this id; undefined where there is none. */
  async get(id: string, options: CallOptions = {}): Promise<Stored<D> | undefined> {
    return (await this.getVersioned(id, options))?.document;
  }

  async getVersioned(id: string, options: CallOptions = {}): Promise<Versioned<D> | undefined> {
    try {
      return versioned(
        await this.context.transport.answer<Stored<D>>({ ...options, method: 'GET', path: this.path('documents', id) }),
      );
    } catch (error) {
      if (hasCode(error, 'DOCUMENT_NOT_FOUND')) return undefined;
      throw error;
    }
  }

  /** Writes a document, in the place of the one with its id or as a new one. */
  async put(document: Stored<D>, { ifVersion, ifAbsent, ...options }: PutOptions = {}): Promise<Versioned<D>> {
    const headers = { ...matching(ifVersion), 'If-None-Match': ifAbsent ? '*' : undefined };
    const path = this.path('documents', document.id);
    return versioned(
      await this.context.transport.answer<Stored<D>>({ ...options, method: 'PUT', path, headers, json: document }),
    );
  }

  /** Changes these members of a document, and removes those that are null here. */
  async patch(id: string, changes: Patch<D>, { ifVersion, ...options }: PatchOptions = {}): Promise<Versioned<D>> {
    const path = this.path('documents', id);
    const headers = matching(ifVersion);
    return versioned(
      await this.context.transport.answer<Stored<D>>({ ...options, method: 'PATCH', path, headers, json: changes }),
    );
  }

  /** Deletes a document softly: its versions stay as history. */
  async delete(
    id: string,
    { ifVersion, ...options }: ConditionalOptions = {},
  ): Promise<{ id: string; version: number }> {
    const path = this.path('documents', id);
    return this.context.transport.json({ ...options, method: 'DELETE', path, headers: matching(ifVersion) });
  }

  /** Removes the text of all versions of a document for ever. Their hashes stay. */
  async erase(id: string, options: WriteOptions = {}): Promise<{ id: string; versions: number }> {
    const path = this.path('documents', id);
    return this.context.transport.json({ ...options, method: 'DELETE', path, query: { erase: true } });
  }

  /** Writes documents, up to 10,000, all of them or none. Those without an id get one. */
  async store(documents: ReadonlyArray<Written<D>>, options: WriteOptions = {}): Promise<StoredBatch> {
    const json = { root: this.root, data: documents };
    const { results, ticket_id } = await this.context.transport.json<{
      results: Array<{ id: string; celestia_height: number }>;
      ticket_id: string;
    }>({ ...options, method: 'POST', path: '/store', json });
    return { ids: results.map(({ id }) => id), height: results[0]?.celestia_height ?? 0, ticket_id };
  }

  /**
   * The documents that meet a filter, all of them without one. Those that are deleted softly are left out. Without a
   * key these are public reads.
   */
  find(filter: Filter<D> = {}, { history = false, deleted, ...options }: FindOptions = {}): Records<Stored<D>> {
    const { context } = this;
    if (context.isPublic) {
      return new Records((selection, { signal, timeoutMs, ...page }) => {
        if (history || deleted) throw onlyWithKey(history ? 'history' : 'deleted');
        const query = { ...publicParameters(checkedFilter(filter)), ...pageParameters(selection, page) };
        return context.transport.json<Page<unknown>>({
          method: 'GET',
          path: this.path('data'),
          query,
          signal,
          timeoutMs,
        });
      }, options);
    }
    return new Records(({ sort, select }, { cursor, limit, count, signal, timeoutMs }) => {
      const find = history || deleted ? checkedFilter(filter) : present(checkedFilter(filter));
      const page = { sort, select, cursor, limit, count: count ? 'exact' : 'none' };
      const json = { root: this.root, find, ...page, include_history: history };
      return context.transport.json<Page<unknown>>({
        method: 'POST',
        path: '/list',
        json,
        isRead: true,
        signal,
        timeoutMs,
      });
    }, options);
  }

  /** All documents at one height. */
  export(options: ExportOptions<D> = {}): Export<Stored<D>> {
    return new Export(this.context, this.name, options as ExportOptions<Stored<D>>);
  }

  /** All documents at one height as a file. */
  async exportFile(options: ExportFileOptions<D>): Promise<ExportedFile> {
    return exportFile(this.context, this.name, options);
  }

  /** Stores the records of a file of any size; what breaks off goes on. */
  async import(source: ByteSource, options: ImportOptions = {}): Promise<ImportReport> {
    return importRecords(this.context, this.name, source, options);
  }

  /** The changes from now on, or from any moment on. */
  changes(options: ChangesOptions<D> = {}): ChangeFeed<Stored<D>> {
    return new ChangeFeed(this.context, { ...options, collection: this.name } as ChangesOptions<Stored<D>>);
  }

  /** A map of the documents that stays right. It needs a key with `Read`. */
  follow(options: FollowOptions<D> = {}): Live<Stored<D>> {
    return new Live(this.context, { collection: this.name }, options as FollowOptions<Stored<D>>);
  }

  async create(definition: Definition = {}, options: WriteOptions = {}): Promise<Definition> {
    const path = appPath(this.context, 'collections');
    return this.context.transport.json({ ...options, method: 'POST', path, json: { ...definition, name: this.name } });
  }

  async definition(options: CallOptions = {}): Promise<Definition> {
    return this.context.transport.json({ ...options, method: 'GET', path: this.path() });
  }

  async change(definition: Definition, options: WriteOptions = {}): Promise<Definition> {
    return this.context.transport.json({ ...options, method: 'PUT', path: this.path(), json: definition });
  }

  /** Deletes the collection. `force` takes its documents too, `cascade` the views and queries that read it. */
  async drop({
    force,
    cascade,
    ...options
  }: WriteOptions & { force?: boolean; cascade?: boolean } = {}): Promise<void> {
    const json = { force, cascade };
    await this.context.transport.json({ ...options, method: 'DELETE', path: this.path(), json });
  }

  /** Makes an index of any type; where many documents are there it is built, and `ticket_id` names the task. */
  async createIndex(
    definition: IndexDefinition,
    options: WriteOptions = {},
  ): Promise<Definition & { ticket_id?: string }> {
    const path = appPath(this.context, 'indexes');
    const json = { ...definition, collection: this.name };
    return this.context.transport.json({ ...options, method: 'POST', path, json });
  }

  private get root(): string {
    return `${this.context.appId}::${this.name}`;
  }

  private path(...segments: string[]): string {
    return appPath(this.context, 'collections', this.name, ...segments);
  }
}

/** An empty filter cannot be a part of another one. */
const present = (filter: object): object => {
  const deleted = { deleted: { isNot: true } };
  return Object.keys(filter).length === 0 ? deleted : { and: [filter, deleted] };
};

const onlyWithKey = (option: string): GranaryError =>
  new GranaryError(`A read without a key does not take \`${option}\``, { code: 'NOT_SUPPORTED' });

const matching = (version: number | undefined): Record<string, string | undefined> => ({
  'If-Match': version === undefined ? undefined : `"${version}"`,
});

function versioned<D>({ body, headers }: { body: Stored<D>; headers: Headers }): Versioned<D> {
  return { document: body, version: Number(/\d+/.exec(headers.get('etag') ?? '')?.[0]) };
}
