import type { Step } from '@granary/shared/postgres/pipeline';
import type { Connection, Pool } from '@granary/shared/postgres/pool';
import { empty, join, sql, type Sql } from '@granary/shared/postgres/sql';
import type { App } from '../catalog/app';
import type { CollectionRef } from '../catalog/collection';
import { nothingRemoved, type DerivedRemoval, type DerivedRemovals } from '../usage/document-removal';
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
   * A CTE of the statement that removes documents, as `name as (…)`. It can read `gone`, with the columns of a version.
   */
  removalCte: Sql;
  /**
   * Statements for documents that were copied: new ones, so there is no version before. They run under the lock of the
   * head, after the COPY and before the commit log, and are sent with COMMIT.
   */
  afterCopy(rows: readonly DocumentRow[]): readonly Step[];
  /**
   * Computes what follows from the documents of a preloaded bulk alone, on any connection while they are copied.
   * Returns the statements for its turn.
   */
  besideCopy(pool: Pool, rows: readonly DocumentRow[]): Promise<readonly Step[]>;
  /**
   * Derives the rows that can be written in the transaction of the COPY, after it and before the lock is taken. Returns
   * the statements for the turn of the bulk.
   */
  beforeTurn(tx: Connection, rows: readonly DocumentRow[]): Promise<readonly Step[]>;
}

/**
 * The statements for all that is derived from one collection, compiled once for each state of the catalog. The methods
 * are those of each part of it, see DerivedRows.
 */
export interface DerivedStatements extends Pick<DerivedRows, 'afterCopy' | 'besideCopy' | 'beforeTurn'> {
  /** Whether nothing is derived. */
  isEmpty: boolean;
  /** Follows the CTEs of the upsert; empty or with a comma before it. */
  ctes: Sql;
  /** Columns that `written` returns for them; empty or with a comma before them. */
  returning: Sql;
  removal: DerivedRemoval;
}

const none: readonly Step[] = [];
export const nothingDerived: DerivedStatements = {
  isEmpty: true,
  ctes: empty,
  returning: empty,
  removal: nothingRemoved,
  afterCopy: () => none,
  besideCopy: () => Promise.resolve(none),
  beforeTurn: () => Promise.resolve(none),
};

/** The source of derived rows, such as the rows of live views. */
export interface DerivedSource {
  /** Called once for each state of a collection, not for each batch. */
  rowsOf(collection: CollectionRef): readonly DerivedRows[];
  /**
   * Lets derived rows of these collections no longer follow their changes, from this transaction on, which holds the
   * lock of the head. The revision of the catalog grows.
   */
  abandon(tx: Connection, app: App, collections: readonly CollectionRef[]): Promise<void>;
}

const noSource: DerivedSource = { rowsOf: () => [], abandon: () => Promise.resolve() };

/**
 * The place where derived rows (live views) are maintained: after the plan of a batch, before its COMMIT, whichever
 * path it takes. A collection from which nothing is derived has the same statements as without this. Documents also
 * change in `usage/document-removal`, which is not part of the commit path.
 */
export class AfterPlan {
  private readonly compiled = new WeakMap<CollectionRef, DerivedStatements>();

  constructor(private readonly source: DerivedSource = noSource) {}

  statementsFor(collection: CollectionRef): DerivedStatements {
    let statements = this.compiled.get(collection);
    if (!statements) this.compiled.set(collection, (statements = compile(this.source.rowsOf(collection))));
    return statements;
  }

  /** Returns the given collections from which something is derived. */
  derivedFrom(collections: Iterable<CollectionRef>): CollectionRef[] {
    return [...collections].filter((collection) => !this.statementsFor(collection).isEmpty);
  }

  /** The part that purges and erasures of documents use. */
  readonly removals: DerivedRemovals = {
    removalFrom: (collection) => this.statementsFor(collection).removal,
    abandon: async (tx, collection) => {
      const { appNumber: number, appId } = collection;
      if (!this.statementsFor(collection).isEmpty) await this.abandon(tx, { number, appId }, [collection]);
    },
  };

  /** See DerivedSource. */
  abandon(tx: Connection, app: App, collections: readonly CollectionRef[]): Promise<void> {
    return this.source.abandon(tx, app, collections);
  }
}

function compile(derived: readonly DerivedRows[]): DerivedStatements {
  if (derived.length === 0) return nothingDerived;
  return {
    isEmpty: false,
    ctes: join([empty, ...derived.map(({ upsertCte }) => upsertCte)], ', '),
    returning: sql`, new.body, new.ordinal, new.place`,
    removal: {
      ctes: join([empty, ...derived.map(({ removalCte }) => removalCte)], ', '),
      returning: sql`, body, ordinal, place`,
    },
    afterCopy: (rows) => derived.flatMap((each) => each.afterCopy(rows)),
    besideCopy: async (pool, rows) => (await Promise.all(derived.map((each) => each.besideCopy(pool, rows)))).flat(),
    beforeTurn: async (tx, rows) => {
      const steps: Step[] = [];
      for (const each of derived) steps.push(...(await each.beforeTurn(tx, rows)));
      return steps;
    },
  };
}
