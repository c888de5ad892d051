import { forbidden, invalid } from '@granary/shared/errors';
import type { CreateViewRequest } from '@granary/shared/gen/granary/data/v1/CreateViewRequest';
import { toText } from '@granary/shared/json/value';
import { nameRule } from '@granary/shared/names';
import { row, type Connection, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { App } from '../catalog/app';
import { findCollections, type CollectionRef, type ReadAccess } from '../catalog/collection';
import { LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { isName } from '../catalog/names';
import { replacementName } from '../catalog/table-names';
import { noSuchCollection } from '../catalog/near-collection';
import { priceText } from '../catalog/read-price';
import { resolveReferences } from '../query/execute/references';
import { invalidQuery } from '../query/language/query-error';
import { readJsonText } from '../query/language/paging';
import { assertOperands } from '../query/plan/operands';
import { assertPlainSources } from './encrypted-sources';
import { assertLiveQuery, liveViewsMax } from './language/live-support';
import { parseViewQuery, type ViewQuery } from './language/view-query';
import { layoutOf } from './layout';
import { planView } from './plan/view-plan';
import { viewRows } from './sql/view-sql';
import { checkVariableLengths, parseVariables } from './variables';

/** A view is made from this. */
export interface ViewDefinition {
  name: string;
  queryText: string;
  query: ViewQuery;
  variablesText: string;
  variables: ReturnType<typeof parseVariables>;
  sourceCollections: string[];
  refreshMode: string;
  readPriceText: string | null;
  /** Whether the changes of its rows are logged. */
  keepsChanges: boolean;
}

/** A definition is checked with these. */
export interface DefinitionOptions {
  /**
   * The read access to the view. Where it is empty, a view of a private source is private, and any other has
   * `defaultRead`.
   */
  readAccess: string;
  /** Whether a private source may be shown in public. */
  mayPublish: boolean | undefined;
  defaultRead: ReadAccess;
  /** The number of the view that it changes. */
  replaces?: bigint;
}

/** The check of a definition against its sources gives this. */
export interface CheckedDefinition {
  readAccess: string;
  layoutText: string;
}

/** Returns the requested definition. Throws VALIDATION_FAILED, INVALID_QUERY, LIMIT_EXCEEDED. */
export function definitionOf(request: CreateViewRequest): ViewDefinition {
  const { name, sourceCollections } = request;
  if (!isName(name)) throw invalid('The name is not valid', { name: [nameRule] });
  const refreshMode = request.refreshMode || 'lazy';
  if (refreshMode !== 'lazy' && refreshMode !== 'live') throw invalidQuery('refresh_mode', 'must be lazy or live');
  if (!['', 'public', 'private'].includes(request.readAccess)) {
    throw invalidQuery('access_policy.read', 'must be public or private');
  }
  const queryText = textOf(request.queryJson, 'query');
  const variablesText = textOf(request.variablesJson, 'variables');
  const queryValue = readJsonText(Buffer.from(queryText), 'query');
  // A view that is stored with it keeps all rows.
  if (queryValue instanceof Map && queryValue.get('limit') === null)
    throw invalidQuery('query.limit', 'must not be null');
  const query = parseViewQuery(queryValue, sourceCollections);
  if (refreshMode === 'live') assertLiveQuery(query);
  const variables = parseVariables(variablesText);
  checkVariableLengths(variables);
  const readPriceText = priceText(request.readPriceConfig);
  const keepsChanges = request.keepsChanges ?? false;
  if (keepsChanges) assertFollowable(query, refreshMode);
  return {
    name,
    queryText,
    query,
    variablesText,
    variables,
    sourceCollections,
    refreshMode,
    readPriceText,
    keepsChanges,
  };
}

/** Throws INVALID_QUERY for a view whose rows do not change one by one. */
function assertFollowable(query: ViewQuery, refreshMode: string): void {
  if (refreshMode !== 'live') throw invalidQuery('changes', 'can only be kept of a view with the refresh_mode live');
  if (query.limit === undefined) return;
  throw invalidQuery('changes', 'cannot be kept of a view with a limit: which rows it shows depends on all others');
}

/**
 * Checks a definition against its sources, under the lock of the app. Throws COLLECTION_NOT_FOUND with the name that is
 * near, LIMIT_EXCEEDED, INVALID_QUERY, and FORBIDDEN where it would make a private source public.
 */
export async function checkDefinition(
  tx: Connection,
  app: App,
  definition: ViewDefinition,
  options: DefinitionOptions,
): Promise<CheckedDefinition> {
  const { query, sourceCollections, refreshMode } = definition;
  const sources = await requireSources(tx, app, sourceCollections);
  assertPlainSources(query, sources.values());
  if (refreshMode === 'live') await checkLiveViews(tx, app, sourceCollections, options.replaces);
  const readAccess = readAccessOf(sources, options);
  return { readAccess, layoutText: await checkedLayout(tx, app, definition, sources) };
}

/** The sources of a view by their names. Throws COLLECTION_NOT_FOUND with the name that is near. */
export async function requireSources(
  db: Queryable,
  app: App,
  names: readonly string[],
): Promise<Map<string, CollectionRef>> {
  const sources = new Map((await findCollections(db, app, names)).map((source) => [source.name, source]));
  const missing = names.find((name) => !sources.has(name));
  if (missing !== undefined) throw await noSuchCollection(db, app, missing);
  return sources;
}

/** Throws LIMIT_EXCEEDED where a collection has as many live views as it may, beside the one that is replaced. */
async function checkLiveViews(
  tx: Connection,
  app: App,
  names: readonly string[],
  replaced: bigint | undefined,
): Promise<void> {
  const fullCollection = await row<{ name: string }>(
    tx,
    sql`select s.name from view v cross join unnest(v.source_collections) s(name)
        where v.app_number = ${app.number} and v.refresh_mode = 'live' and s.name = any(${names})
          and v.number <> ${replaced ?? 0n}
        group by s.name having count(*) >= ${liveViewsMax} limit 1`,
  );
  if (fullCollection)
    throw invalid(`The collection ${fullCollection.name} has ${liveViewsMax} live views already`, {}, LIMIT_EXCEEDED);
}

/** Returns the read access to the view. Throws FORBIDDEN. */
function readAccessOf(
  sources: ReadonlyMap<string, CollectionRef>,
  { readAccess, mayPublish, defaultRead }: DefinitionOptions,
): string {
  const showsPrivate = [...sources.values()].some((source) => source.readAccess === 'private');
  if (showsPrivate && readAccess === 'public' && !mayPublish) {
    throw forbidden('A public view of a private collection needs the permission Admin');
  }
  return readAccess || (showsPrivate ? 'private' : defaultRead);
}

/**
 * The layout of a view, after making its statement: what its sources do not allow is refused now. Throws INVALID_QUERY.
 */
async function checkedLayout(
  tx: Connection,
  app: App,
  { query, variables }: ViewDefinition,
  sources: ReadonlyMap<string, CollectionRef>,
): Promise<string> {
  const find = await resolveReferences(tx, app.appId, query.find);
  const plan = planView({ ...query, find }, sources);
  assertOperands(plan.rows, find);
  viewRows(plan);
  return JSON.stringify(
    layoutOf(
      plan,
      [...variables.values()].map(({ path }) => path),
    ),
  );
}

/** Stores a view that has no rows yet, or what is to take the place of the view `replaces`. Returns its number. */
export async function insertView(
  tx: Connection,
  app: App,
  view: ViewDefinition,
  { readAccess, layoutText }: CheckedDefinition,
  replaces: bigint | null = null,
): Promise<bigint> {
  const { queryText, variablesText, sourceCollections, refreshMode } = view;
  const name = replaces === null ? view.name : replacementName(view.name);
  const { number } = (await row<{ number: bigint }>(
    tx,
    sql`insert into view (app_number, name, query_text, source_collections, refresh_mode, variables_text, read_access,
          layout_text, read_price_config_text, keeps_changes, status, created_at, replaces)
        values (${app.number}, ${name}, ${queryText}, ${sourceCollections}, ${refreshMode}, ${variablesText},
          ${readAccess}, ${layoutText}, ${view.readPriceText}, ${view.keepsChanges}, 'building', clock_timestamp(),
          ${replaces}) returning number`,
  ))!;
  return number;
}

/** JSON text of an object, without the white space that it came with; `{}` for none. */
function textOf(bytes: Uint8Array, location: string): string {
  if (bytes.length === 0) return '{}';
  const value = readJsonText(Buffer.from(bytes), location);
  if (value === null) return '{}';
  if (!(value instanceof Map)) throw invalidQuery(location, 'must be an object');
  return toText(value);
}
