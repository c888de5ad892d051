import type { App } from '@granary/client';
import { allOf } from '../session/listing.ts';
import { apiPath } from '../session/paths.ts';
import { readSkills } from './app-reads.ts';

export type Members = Record<string, unknown>;

/** All of an app but its documents: what the service takes to make it again, without what it adds by itself. */
export interface AppDefinitions {
  /** On which networks the app is paid; undefined for all. */
  payment_networks: unknown;
  collections: Array<Members & { name: string }>;
  indexes: Array<Members & { name: string; collection: string }>;
  views: Array<Members & { name: string }>;
  /** All versions of each query, the oldest first. */
  queries: Array<Members & { name: string; version: string }>;
  datasets: string[];
  skills: string;
}

/** The members of each kind that its route takes, under the names under which it is read. */
const membersOf = {
  collection: [
    'name',
    'namespace',
    'primary_column',
    'sort_column',
    'schema_definition',
    'access_policy',
    'read_price_config',
    'write_pricing',
    'retention_days',
  ],
  index: [
    'collection',
    'name',
    'field_name',
    'fields',
    'index_type',
    'options',
    'unique',
    'price_config',
    'read_price_config',
  ],
  view: [
    'name',
    'query',
    'source_collections',
    'refresh_mode',
    'changes',
    'variables',
    'access_policy',
    'read_price_config',
  ],
  query: [
    'name',
    'version',
    'source_collection',
    'base_query',
    'parameters',
    'description',
    'example_request',
    'example_response',
    'access_policy',
    'read_price_config',
  ],
} as const;

/** The members that a route takes, without those that have no value. */
export function takenMembers<T extends Members>(kind: keyof typeof membersOf, value: T): T {
  const names = membersOf[kind].filter((name) => value[name] !== undefined && value[name] !== null);
  return Object.fromEntries(names.map((name) => [name, value[name]])) as T;
}

/**
 * The definitions of an app as they are now, with datasets by name only, and the indexes that could not be built, which
 * are not among them. Numbers are as the app reads them: as they are written.
 */
export async function readDefinitions(
  app: App,
  signal: AbortSignal,
): Promise<{ definitions: AppDefinitions; failedIndexes: string[] }> {
  const list = <T>(kind: string, member?: string) => allOf<T>(app, apiPath('apps', app.id, kind), member, { signal });
  const collections = await list<AppDefinitions['collections'][number]>('collections');
  const indexes = await list<AppDefinitions['indexes'][number]>('indexes');
  const views = await list<AppDefinitions['views'][number]>('views', 'views');
  const queries = await list<{ name: string; versions: string[] }>('queries', 'queries');
  const datasets = await list<{ name: string }>('datasets', 'datasets');
  const versions: AppDefinitions['queries'] = [];
  for (const query of queries) {
    for (const version of [...query.versions].reverse()) {
      const path = apiPath('apps', app.id, 'queries', query.name);
      const options = { query: { version }, signal };
      versions.push(takenMembers('query', await app.request<AppDefinitions['queries'][number]>('GET', path, options)));
    }
  }
  const { payment_networks } = await app.request<Members>('GET', apiPath('applications', app.id), { signal });
  const definitions = {
    payment_networks: payment_networks ?? undefined,
    collections: collections.map((one) => takenMembers('collection', one)),
    // One that failed was never there for reads.
    indexes: indexes
      .filter((one) => !hasFailed(one))
      .map((one) => takenMembers('index', one))
      .sort((one, other) => compared(one.collection, other.collection) || compared(one.name, other.name)),
    views: views.map((one) => takenMembers('view', one)),
    queries: versions,
    datasets: datasets.map(({ name }) => name),
    skills: await readSkills(app, signal),
  };
  const failedIndexes = indexes.filter(hasFailed).map(({ name, collection }) => `"${name}" of "${collection}"`);
  return { definitions, failedIndexes };
}

const hasFailed = ({ status }: Members): boolean => status === 'failed';

const compared = (one: string, other: string): number => (one < other ? -1 : one > other ? 1 : 0);

/** The body that makes an index as it is shown. */
export function indexBody(index: Members): Members {
  const { unique, options, field_name: fieldName, ...others } = takenMembers('index', index);
  const isComposite = others['fields'] !== undefined;
  return {
    ...others,
    field_name: isComposite ? undefined : fieldName,
    options: { ...(options as object | undefined), unique },
    // The documents were stored without it, and are as they were.
    force: true,
  };
}

/** The body that makes a version of a query as it is shown. */
export function queryBody(query: Members): Members {
  const { version, ...others } = takenMembers('query', query);
  return { ...others, version: version === '' ? undefined : version };
}
