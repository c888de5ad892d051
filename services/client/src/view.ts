import type { Definition } from './collection.ts';
import { checkedFilter } from './documents/filter.ts';
import { pageParameters, Records, type Page } from './documents/records.ts';
import { ChangeFeed, type ChangesOptions } from './feed/changes.ts';
import { Live, type FollowOptions } from './feed/live.ts';
import { appPath, pathSegment, type AppContext } from './http/app-context.ts';
import type { CallOptions, Query, WriteOptions } from './http/transport.ts';
import type { Filter } from './types.ts';

type Values = Record<string, unknown>;

/** Values of variables or parameters as a URL has them. */
const valuesOf = (values: object): Query =>
  Object.fromEntries(
    Object.entries(values as Values).map(([name, value]) => {
      return [name, typeof value === 'object' && value !== null ? JSON.stringify(value) : (value as string)];
    }),
  );

/** A materialized view, whose rows are of the type `R`. */
export class View<R extends object, V extends object> {
  readonly name: string;
  private readonly context: AppContext;

  constructor(context: AppContext, name: string) {
    this.context = context;
    this.name = name;
  }

  /** Its rows, by the values of its variables and by a filter of rows. */
  rows(variables: Partial<V> = {}, { find, ...options }: CallOptions & { find?: Filter<R> } = {}): Records<R> {
    const path = `/api/views/${pathSegment(this.context.appId)}/${pathSegment(this.name)}/data`;
    return new Records((selection, { signal, timeoutMs, ...page }) => {
      const filter = find && JSON.stringify(checkedFilter(find));
      const query = { ...valuesOf(variables), ...pageParameters(selection, page), filter };
      return this.context.transport.json<Page<unknown>>({ method: 'GET', path, query, signal, timeoutMs });
    }, options);
  }

  /** How its rows change; it has to be live, with `changes`. */
  changes(options: Omit<ChangesOptions<R>, 'find' | 'mode'> = {}): ChangeFeed<R> {
    return new ChangeFeed<R>(this.context, { ...options, view: this.name });
  }

  /** A map of its rows that stays right; it has to be live, with `changes`. */
  follow(options: Omit<FollowOptions<R>, 'find'> = {}): Live<R> {
    return new Live<R>(this.context, { view: this.name }, options);
  }

  /** Makes the view; the task of `ticket_id` ends when it has its rows. */
  async create(definition: Definition, options: WriteOptions = {}): Promise<{ ticket_id: string }> {
    const json = { ...definition, name: this.name };
    return this.context.transport.json({ ...options, method: 'POST', path: appPath(this.context, 'views'), json });
  }

  async definition(options: CallOptions = {}): Promise<Definition> {
    return this.context.transport.json({ ...options, method: 'GET', path: appPath(this.context, 'views', this.name) });
  }

  /** Changes the view; while it is built anew it shows its present rows. */
  async change(definition: Definition, options: WriteOptions = {}): Promise<{ ticket_id?: string }> {
    const path = appPath(this.context, 'views', this.name);
    return this.context.transport.json({ ...options, method: 'PUT', path, json: definition });
  }

  async refresh(options: WriteOptions = {}): Promise<{ ticket_id: string }> {
    return this.context.transport.json({
      ...options,
      method: 'POST',
      path: appPath(this.context, 'views', this.name, 'refresh'),
    });
  }

  async drop(options: WriteOptions = {}): Promise<void> {
    await this.context.transport.json({
      ...options,
      method: 'DELETE',
      path: appPath(this.context, 'views', this.name),
    });
  }
}

/** The arguments of `rows` of a predefined query: parameters may be left out only where none of them is required. */
type RowsArguments<P extends object> =
  Record<never, never> extends P
    ? [parameters?: P, options?: CallOptions & { version?: string }]
    : [parameters: P, options?: CallOptions & { version?: string }];

/** A predefined query, whose records are of the type `R`. */
export class PredefinedQuery<R extends object, P extends object> {
  readonly name: string;
  private readonly context: AppContext;

  constructor(context: AppContext, name: string) {
    this.context = context;
    this.name = name;
  }

  /**
   * Its records for these parameters; of the newest version of the query if nothing else is said. Their order, their
   * fields and their number are those of the query.
   */
  rows(...[parameters, { version, ...options } = {}]: RowsArguments<P>): Omit<Records<R>, 'sort' | 'select'> {
    const path = `/api/queries/${pathSegment(this.context.appId)}/${pathSegment(this.name)}/data`;
    return new Records(
      (_, { cursor, limit, count, signal, timeoutMs }) => {
        const page = { version, cursor, count: count ? 'exact' : 'none' };
        // A parameter of the query may have that name.
        const query = { ...valuesOf(parameters ?? {}), ...page, ...(limit !== undefined && { limit }) };
        return this.context.transport.json<Page<unknown>>({ method: 'GET', path, query, signal, timeoutMs });
      },
      { ...options, hasOwnPageSize: true },
    );
  }

  async create(definition: Definition, options: WriteOptions = {}): Promise<Definition> {
    const json = { ...definition, name: this.name };
    return this.context.transport.json({ ...options, method: 'POST', path: appPath(this.context, 'queries'), json });
  }

  async definition(options: CallOptions = {}): Promise<Definition> {
    return this.context.transport.json({ ...options, method: 'GET', path: this.path });
  }

  async drop(options: WriteOptions = {}): Promise<void> {
    await this.context.transport.json({ ...options, method: 'DELETE', path: this.path });
  }

  private get path(): string {
    return appPath(this.context, 'queries', this.name);
  }
}
