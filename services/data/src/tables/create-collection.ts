import { conflict, invalid } from '@granary/shared/errors';
import { execute, row, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { nameRule } from '@granary/shared/names';
import { findCollection, type CollectionRef, type ReadAccess } from '../catalog/collection';
import { bumpCatalogRevision } from '../catalog/app-lock';
import { ALREADY_EXISTS, isName } from '../catalog/names';
import { ageIndexName, documentsTable, historyTable } from '../catalog/table-names';
import { parseSchema } from '../catalog/schema';
import { checkDefinitionBytes, LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { addSchemaIndexes } from './define-index';
import type { App } from '../catalog/app';

/** Collections of one app, at most. */
export const collectionsMax = 1_000;

export interface NewCollection {
  name: string;
  namespace?: string | undefined;
  primaryColumn?: string | undefined;
  sortColumn?: string | undefined;
  schemaText?: string | undefined;
  readAccess: ReadAccess;
  /** JSON; see catalog/read-price.ts. */
  readPriceText?: string | null;
  hasWritePricing?: boolean | undefined;
}

/**
 * Creates a collection with its tables and the indexes that its schema declares. The app must be locked.
 * Throws ALREADY_EXISTS when a collection or view has the name, LIMIT_EXCEEDED, VALIDATION_FAILED.
 */
export async function addCollection(
  tx: Connection,
  app: App,
  input: NewCollection,
  time: Date,
): Promise<CollectionRef> {
  if (!isName(input.name)) throw invalid('The name is not valid', { name: [nameRule] });
  const schema = input.schemaText === undefined ? undefined : parseSchema(input.schemaText);
  const { taken, collections } = (await row<{ taken: boolean; collections: bigint }>(
    tx,
    sql`select exists (select from view v where v.app_number = ${app.number} and v.name = ${input.name})
            or exists (select from collection c where c.app_number = ${app.number} and c.name = ${input.name} and c.deleted_at is null) as taken,
          (select count(*) from collection c where c.app_number = ${app.number} and c.deleted_at is null) as collections`,
  ))!;
  if (taken) throw conflict(ALREADY_EXISTS, `A collection or view with the name ${input.name} already exists`);
  if (collections >= collectionsMax) {
    throw invalid(`An app may have at most ${collectionsMax} collections`, {}, LIMIT_EXCEEDED);
  }
  const { number } = (await row<{ number: bigint }>(
    tx,
    sql`insert into collection (app_number, name, namespace, primary_column, sort_column, schema_text, read_access,
          read_price_config_text, write_pricing, created_at, updated_at)
        values (${app.number}, ${input.name}, ${input.namespace ?? null}, ${input.primaryColumn ?? null}, ${input.sortColumn ?? null},
                ${input.schemaText ?? null}, ${input.readAccess}, ${input.readPriceText ?? null},
                ${input.hasWritePricing === true}, ${time}, ${time})
        returning number`,
  ))!;
  const table = { appNumber: app.number, number };
  await execute(
    tx,
    sql`create table ${documentsTable(table)} (
          id text collate "C" primary key, body text not null, version bigint not null, deleted boolean not null,
          created_at timestamptz not null, updated_at timestamptz not null, ordinal bigint not null, place int not null)`,
  );
  // It summarises ranges of pages, so that a write leaves it alone (HOT).
  await execute(
    tx,
    sql`create index ${ageIndexName(table)} on ${documentsTable(table)} using brin (updated_at) with (autosummarize = on)`,
  );
  await execute(
    tx,
    sql`create table ${historyTable(table)} (
          id text collate "C" not null, body text not null, version bigint not null, deleted boolean not null,
          created_at timestamptz not null, updated_at timestamptz not null, ordinal bigint not null, place int not null,
          primary key (id, version))`,
  );
  if (schema) {
    await addSchemaIndexes(tx, { ...table, name: input.name }, schema, time);
    await checkDefinitionBytes(tx, app.number);
  }
  await bumpCatalogRevision(tx, app.number);
  return (await findCollection(tx, app, input.name))!;
}
