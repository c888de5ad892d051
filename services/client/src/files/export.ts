import { checkedFilter } from '../documents/filter.ts';
import { GranaryError, isPassing } from '../errors.ts';
import { appPath, features, type AppContext } from '../http/app-context.ts';
import { readLines } from '../http/lines.ts';
import type { CallOptions, Query } from '../http/transport.ts';
import { backoffMs, sleep } from '../http/waiting.ts';
import type { Field, Filter } from '../types.ts';

export interface ExportOptions<D> extends CallOptions {
  find?: Filter<D> | undefined;
  select?: ReadonlyArray<Field<D>> | undefined;
  /** The height at which the collection is exported; the last one if nothing else is said. */
  height?: number | undefined;
  /** Documents behind this id, in the order of the bytes of ids. */
  after?: string | undefined;
  /** Also those that are deleted softly, with `deleted: true`. */
  deleted?: 'include' | undefined;
}

export interface ExportFileOptions<D> extends ExportOptions<D> {
  format: 'ndjson' | 'json' | 'csv';
  /** The columns of a table; by default the fields of the schema or of the first documents. */
  columns?: readonly string[] | undefined;
  /** `escape` keeps spreadsheets from taking texts for formulas. */
  formulas?: 'escape' | undefined;
  /** Every version of each document. */
  history?: boolean | undefined;
}

export interface ExportedFile {
  height: number;
  /** As the service would name it. */
  filename: string;
  contentType: string;
  stream: ReadableStream<Uint8Array>;
}

/** Where few documents meet a filter, there is an empty line every 20 seconds. */
const idleMs = 120_000;
const attemptsInVain = 6;

const parametersOf = (options: ExportOptions<never>): Query => ({
  find: options.find && JSON.stringify(checkedFilter(options.find as object)),
  select: options.select?.join(','),
  at: options.height,
  after: options.after,
  deleted: options.deleted,
});

/**
 * The documents of a collection at one height. Where the connection breaks off the export goes on behind the last
 * document that came.
 */
export class Export<D> implements AsyncIterable<D> {
  /** Known once the first document has come, or the export has ended. */
  height: number | undefined;
  private readonly context: AppContext;
  private readonly collection: string;
  private readonly options: ExportOptions<D>;

  constructor(context: AppContext, collection: string, options: ExportOptions<D> = {}) {
    this.context = context;
    this.collection = collection;
    this.options = options;
    this.height = options.height;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<D, void, undefined> {
    const { signal, select } = this.options;
    const hidesId = select !== undefined && !(select as readonly string[]).includes('id');
    let { after } = this.options;
    for (let inVain = 0; ;) {
      try {
        for await (const line of this.lines(after)) {
          if (line === '') continue;
          const document = this.context.transport.settings.parse(line) as D & { id?: string };
          after = document.id!;
          inVain = 0;
          if (hidesId) delete document.id;
          yield document as Awaited<D>;
        }
        return;
      } catch (error) {
        if (!isPassing(error) || inVain >= attemptsInVain) throw error;
        await sleep(backoffMs(inVain, error.retryAfterMs), signal);
        inVain += 1;
      }
    }
  }

  private async *lines(after: string | undefined): AsyncGenerator<string, void, undefined> {
    const { context, collection, options } = this;
    const select = options.select && [...new Set(['id', ...options.select])];
    const answer = await context.transport.open({
      ...options,
      method: 'GET',
      path: appPath(context, 'collections', collection, 'export'),
      query: { ...parametersOf({ ...options, select }), at: this.height, after },
      headers: { Accept: 'application/x-ndjson' },
      feature: features.export,
    });
    this.height = heightOf(answer.response);
    yield* readLines(answer, idleMs, options.signal);
  }
}

/** A collection at one height as a file. Its stream fails where the connection breaks off. */
export async function exportFile<D>(
  context: AppContext,
  collection: string,
  options: ExportFileOptions<D>,
): Promise<ExportedFile> {
  const { response } = await context.transport.open({
    ...options,
    method: 'GET',
    path: appPath(context, 'collections', collection, 'export'),
    query: {
      ...parametersOf(options),
      format: options.format,
      columns: options.columns?.join(','),
      formulas: options.formulas,
      history: options.history,
    },
    feature: features.export,
  });
  const { headers } = response;
  return {
    height: heightOf(response),
    filename:
      /filename="([^"]+)"/.exec(headers.get('content-disposition') ?? '')?.[1] ?? `${collection}.${options.format}`,
    contentType: headers.get('content-type') ?? '',
    stream: response.body!,
  };
}

function heightOf({ headers, status }: Response): number {
  const height = headers.get('x-granary-height');
  if (height !== null) return Number(height);
  throw new GranaryError('The answer has no height', { code: 'INVALID_ANSWER', status });
}
