import { sql, type Sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../../catalog/collection';
import type { Condition } from '../language/condition';
import { documentsRelation, presentDocuments } from '../plan/relation';
import { Compiler } from './filter-sql';

/** One row where the document with that id is present and matches the condition, none otherwise. */
export function matchingDocument(collection: CollectionRef, id: string, condition: Condition): Sql {
  const compiler = new Compiler(documentsRelation(collection, presentDocuments));
  const where = compiler.where(condition, sql`t.id = ${id}`);
  return sql`select 1 from ${compiler.records()} ${where}`;
}
