import type { Step } from '@granary/shared/postgres/pipeline';
import { empty, join, sql, type Sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../catalog/collection';
import type { DocumentRow } from './plan';

/** Rows that are derived from the documents of a collection, and change in the transaction that changes those. */
export interface DerivedRows {
  /**
   * A CTE of the statement that upserts documents, as `name as (…)`. It can read `written`: for each document the last
   * version of the batch as `id, version, deleted, ordinal, place, body`, and the version that it replaces as the same
   * columns with `old_` before them, null for a new document. All other tables are seen as they were before the
   * statement, and under the lock of the head.
   */
  upsertCte: Sql;
  /**
   * Statements for documents that were copied: new ones, so there is no version before. They run under the lock of the
   * head, after the COPY and before the commit log, and are sent with COMMIT.
   */
  afterCopy(rows: readonly DocumentRow[], at: Date): readonly Step[];
}

/** What is derived from one collection, compiled once for each state of the catalog. */
export interface DerivedStatements {
  /** Follows the CTEs of the upsert; empty or with a comma before it. */
  ctes: Sql;
  /** Columns that `written` returns for them; empty or with a comma before them. */
  returning: Sql;
  afterCopy(rows: readonly DocumentRow[], at: Date): readonly Step[];
}

const none: readonly Step[] = [];
const nothing: DerivedStatements = { ctes: empty, returning: empty, afterCopy: () => none };

/**
 * The place where derived rows (live views) are maintained: after the plan of a batch, before its COMMIT, whichever path
 * it takes. A collection from which nothing is derived has the same statements as without this. Documents also change in
 * `usage/retention-purge`, which is not part of the commit path.
 */
export class AfterPlan {
  private readonly compiled = new WeakMap<CollectionRef, DerivedStatements>();

  /** `derivedFrom` is called once for each state of a collection, not for each batch. */
  constructor(private readonly derivedFrom: (collection: CollectionRef) => readonly DerivedRows[] = () => []) {}

  of(collection: CollectionRef): DerivedStatements {
    let statements = this.compiled.get(collection);
    if (!statements) this.compiled.set(collection, (statements = compile(this.derivedFrom(collection))));
    return statements;
  }
}

function compile(derived: readonly DerivedRows[]): DerivedStatements {
  if (derived.length === 0) return nothing;
  return {
    ctes: join([empty, ...derived.map(({ upsertCte }) => upsertCte)], ', '),
    returning: sql`, new.body, new.ordinal, new.place`,
    afterCopy: (rows, at) => derived.flatMap((each) => each.afterCopy(rows, at)),
  };
}
