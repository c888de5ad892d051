import { readJson, type JsonObject, type JsonValue } from '@granary/shared/json/value';
import { row, rows, type Queryable } from '@granary/shared/postgres/pool';
import { empty, sql } from '@granary/shared/postgres/sql';
import { appNotFound, type App } from '../catalog/app';
import { isPrivateQuery, newestQueries } from '../queries/saved-queries';

/**
 * The part of an app that a reader may see, as its OpenAPI document describes it. Definitions are parsed only when they
 * are described.
 */
export interface AppContent {
  appId: string;
  name: string;
  description: string;
  revision: bigint;
  collections: DescribedCollection[];
  views: DescribedView[];
  queries: DescribedQuery[];
}

export interface DescribedCollection {
  name: string;
  isPrivate: boolean;
  schemaText: string | null;
  /** The indexes that have not failed, in the order of their creation. */
  indexes: ReadonlyArray<{ fields: string[]; declaredType: string }>;
}

export interface DescribedView {
  name: string;
  isPrivate: boolean;
  sources: string[];
  queryText: string;
  variablesText: string;
}

export interface DescribedQuery {
  name: string;
  isPrivate: boolean;
  source: string;
  description: string;
  baseQueryText: string;
  parametersText: string;
  versions: string[];
}

/**
 * Reads what of an app everybody may see, or all of it. Its definitions have 8 MiB together at most. Throws
 * APP_NOT_FOUND.
 */
export async function readContent(tx: Queryable, app: App, isPrivateShown: boolean): Promise<AppContent> {
  const application = await row<{ revision: bigint; name: string; description: string }>(
    tx,
    sql`select h.catalog_revision as revision, a.name, a.description
        from application a join head h on h.app_number = a.number where a.number = ${app.number}`,
  );
  if (!application) throw appNotFound(app.appId);
  const [shown, shownQuery] = isPrivateShown
    ? [empty, empty]
    : [sql` and read_access = 'public'`, sql` and not ${isPrivateQuery}`];
  const collections = await rows<Omit<DescribedCollection, 'indexes'> & { indexesText: string }>(
    tx,
    sql`select name, read_access = 'private' as "isPrivate", schema_text as "schemaText",
          coalesce((select json_agg(json_build_object('fields', coalesce(i.fields, array[i.field_name]),
                      'declaredType', i.index_type) order by i.number)
                    from document_index i where i.collection_number = c.number and i.status <> 'failed'), '[]')::text
            as "indexesText"
        from collection c where app_number = ${app.number} and deleted_at is null${shown} order by name`,
  );
  const views = await rows<DescribedView>(
    tx,
    sql`select name, read_access = 'private' as "isPrivate", source_collections as sources, query_text as "queryText",
          variables_text as "variablesText"
        from view where app_number = ${app.number} and replaces is null${shown} order by name`,
  );
  const queries = await rows<DescribedQuery>(
    tx,
    sql`select q.name, ${isPrivateQuery} as "isPrivate", q.source_collection as source, q.description,
          q.base_query_text as "baseQueryText", q.parameters_text as "parametersText",
          array(select v.version from query v where v.app_number = q.app_number and v.name = q.name
            order by v.number desc) as versions
        from ${newestQueries(app.number)} where true${shownQuery} order by q.name`,
  );
  return {
    appId: app.appId,
    ...application,
    collections: collections.map(({ indexesText, ...collection }) => ({
      ...collection,
      indexes: JSON.parse(indexesText) as DescribedCollection['indexes'],
    })),
    views,
    queries,
  };
}

/** A definition in the catalog, which was checked when it was stored. */
export const readDefinition = (text: string): JsonValue => readJson(Buffer.from(text), { maxDepth: 64 });

/** Returns a definition in the catalog where it is an object, else an object without members. */
export function readObject(text: string | null): JsonObject {
  const value = text === null ? null : readDefinition(text);
  return value instanceof Map ? value : new Map<string, JsonValue>();
}
