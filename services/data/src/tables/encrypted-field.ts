import { conflict } from '@granary/shared/errors';
import { execute, row, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { isFieldPath } from '../catalog/names';
import type { CollectionRef } from '../catalog/collection';
import { documentsTable, historyTable } from '../catalog/table-names';
import { ensureDataKey, type NewDataKey } from '../encryption-keys/data-keys';

export const ENCRYPTION_CONFLICT = 'ENCRYPTION_CONFLICT';

/** Whether one of two paths is the other, or leads to it. */
function overlap(one: string, other: string): boolean {
  return one === other || one.startsWith(`${other}.`) || other.startsWith(`${one}.`);
}

/** The problem with the name of a field that is to be encrypted; undefined where there is none. */
export function encryptedNameProblem(name: string): string | undefined {
  if (!isFieldPath(name)) return 'must be a field path of 1 to 16 steps with dots between them';
  const steps = name.split('.');
  if (steps[0] === 'id' || steps[0] === 'deleted') return 'is read by the service and cannot be encrypted';
  if (steps.some((step) => /^\d+$/.test(step))) return 'leads into an array, whose elements cannot be encrypted';
  return steps.some((step) => step.startsWith('$')) ? 'has a step that begins with $' : undefined;
}

/** Throws ENCRYPTION_CONFLICT for an index over an encrypted field: its keys would show the value. */
export function assertNotEncrypted({ encrypted }: CollectionRef, fields: readonly string[]): void {
  for (const field of fields) {
    const other = encrypted?.names.find((name) => overlap(name, field));
    if (other === undefined) continue;
    throw conflict(ENCRYPTION_CONFLICT, `The field ${other} is encrypted: only an encrypted index can be over it`, {
      field_name: [`overlaps with the encrypted field ${other}`],
    });
  }
}

/**
 * Stores the values of a field encrypted from now on, by `firstKey` where the app has no data key yet. Nothing happens
 * where it is encrypted already. The app must be locked. Throws ENCRYPTION_CONFLICT where another index is over the
 * field, or a stored version of a document has it: what is stored is hashed and cannot be rewritten.
 */
export async function encryptField(
  tx: Connection,
  collection: CollectionRef,
  name: string,
  firstKey: NewDataKey | undefined,
  time: Date,
): Promise<void> {
  if (collection.encrypted?.names.includes(name)) return;
  assertNotEncrypted(collection, [name]);
  const index = collection.indexes.find(({ fields }) => fields.some((field) => overlap(field, name)));
  if (index) {
    throw conflict(ENCRYPTION_CONFLICT, `The index ${index.name} holds values of ${name}: delete it first`, {
      field_name: [`overlaps with a field of the index ${index.name}`],
    });
  }
  await assertNoValues(tx, collection, name);
  await ensureDataKey(tx, collection.appNumber, firstKey, time);
  await execute(
    tx,
    sql`insert into encrypted_field (app_number, collection_number, path, created_at)
        values (${collection.appNumber}, ${collection.number}, ${name}, ${time})`,
  );
}

async function assertNoValues(tx: Connection, collection: CollectionRef, name: string): Promise<void> {
  const steps = name.split('.');
  // Only texts that have the key, or may have it with escapes, are parsed.
  const mayHave = sql`(strpos(body, ${JSON.stringify(steps.at(-1)!)}) > 0 or strpos(body, ${'\\'}) > 0)`;
  const value = sql`case when ${mayHave} then body::json #> ${steps}::text[] end`;
  const document = await row<{ id: string }>(
    tx,
    sql`select id from (select id, body from ${documentsTable(collection)}
                        union all select id, body from ${historyTable(collection)}) v
        where json_typeof(${value}) <> 'null' limit 1`,
  );
  if (!document) return;
  throw conflict(
    ENCRYPTION_CONFLICT,
    `A field can be encrypted before any document has it, and a version of ${JSON.stringify(document.id)} has ${name}`,
    { field_name: ['is in stored documents, in their history perhaps'] },
  );
}
