import { row, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { DatasetTable } from './dataset';

/** The targets of filters that exist: networks by country, and data sets. */
export interface FoundReferences {
  /** Whether the operator has supplied networks by country. */
  hasCountries: boolean;
  /** The tables of the data sets that exist, by name. */
  tables: ReadonlyMap<string, DatasetTable>;
}

/** Looks up the named data sets of an app, and whether there are networks by country. One statement. */
export async function findReferences(
  db: Queryable,
  appId: string,
  datasets: readonly string[],
): Promise<FoundReferences> {
  const references = await row<{ has_countries: boolean; datasets: string }>(
    db,
    sql`select (select sha256 <> '' from country_file) as has_countries,
          coalesce((select json_agg(json_build_object('name', d.name, 'app', d.app_number::text, 'table', d.table_number::text))
            from dataset d join application a on a.number = d.app_number
            where a.app_id = ${appId} and a.deleted_at is null and d.name = any(${datasets}::text[])), '[]')::text as datasets`,
  );
  const tables = (JSON.parse(references!.datasets) as Array<{ name: string; app: string; table: string }>).map(
    ({ name, app, table }) => [name, { appNumber: BigInt(app), tableNumber: BigInt(table) }] as const,
  );
  return { hasCountries: references!.has_countries, tables: new Map(tables) };
}
