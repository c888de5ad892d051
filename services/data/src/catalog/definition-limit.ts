import { invalid } from '@granary/shared/errors';
import { row, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

export const LIMIT_EXCEEDED = 'LIMIT_EXCEEDED';

/** Bytes of all definitions of an app together, at most: queries, views, schemas of collections, indexes. */
export const definitionBytesMax = 8 * 1024 * 1024;

/**
 * Refuses a change after which the definitions of an app are too large together; called in its transaction, under the
 * lock of the app. Lengths are read without the texts. Throws LIMIT_EXCEEDED.
 */
export async function checkDefinitionBytes(tx: Connection, appNumber: bigint): Promise<void> {
  const { bytes } = (await row<{ bytes: bigint }>(
    tx,
    sql`select (
          (select coalesce(sum(octet_length(base_query_text) + octet_length(parameters_text) + octet_length(description)
              + coalesce(octet_length(example_request_text), 0) + coalesce(octet_length(example_response_text), 0)), 0)
            from query where app_number = ${appNumber})
          + (select coalesce(sum(octet_length(query_text) + octet_length(variables_text)), 0)
            from view where app_number = ${appNumber})
          + (select coalesce(sum(octet_length(schema_text)), 0)
            from collection where app_number = ${appNumber} and deleted_at is null)
          + (select coalesce(sum(octet_length(i.name) + octet_length(i.field_name)
              + coalesce(octet_length(array_to_string(i.fields, ',')), 0)), 0)
            from document_index i join collection c on c.number = i.collection_number
            where i.app_number = ${appNumber} and c.deleted_at is null))::int8 as bytes`,
  ))!;
  if (bytes <= BigInt(definitionBytesMax)) return;
  const message = `The queries, views, schemas and indexes of an app may have ${definitionBytesMax} bytes together`;
  throw invalid(message, {}, LIMIT_EXCEEDED);
}
