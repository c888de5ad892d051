import { row, type Queryable } from '@granary/shared/postgres/pool';
import { empty, sql } from '@granary/shared/postgres/sql';
import type { Condition } from '../language/condition';
import { invalidCursor } from '../language/paging';
import { digestOfValues, positionOf, type CursorScope, type Position, type RecordPlace } from '../plan/cursor';
import { Compiler } from '../sql/filter-sql';

/**
 * The place of a record whose sort values its cursor does not hold, read from the record in one statement. `find` is
 * the filter as it is stored: a record that the reader does not see is not read either. Throws INVALID_CURSOR where the
 * record has other sort values by now, does not match any more, or is gone: nothing tells then where the page ended.
 */
export async function positionOfRecord(
  db: Queryable,
  scope: CursorScope,
  find: Condition,
  { id, version, valuesDigest }: RecordPlace,
): Promise<Position> {
  const { source } = scope;
  const compiler = new Compiler(source);
  const hasVersion = source.tieColumn ? sql` and ${source.tieColumn} = ${version ?? '0'}::int8` : empty;
  const where = compiler.where(find, sql`${source.alias.row}.id = ${id}::text${hasVersion}`);
  const record = await row<{ body: string }>(db, sql`select t.body from ${compiler.records()} ${where}`);
  const position = record && positionOf(scope, version === null ? { ...record, id } : { ...record, id, version });
  if (!position || digestOfValues(position.values) !== valuesDigest) {
    throw invalidCursor(
      'came from a record with long sort values, which has changed since: start at the first page, or sort by a shorter field',
    );
  }
  return position;
}
