import type { CollectionRef } from '../../catalog/collection';
import type { Path } from '../../query/language/condition';
import { documentsRelation, presentDocuments, typeOf, type Relation } from '../../query/plan/relation';
import type { FieldType } from '../../values/field-type';
import type { ViewJoin } from '../language/view-joins';
import type { ViewQuery } from '../language/view-query';

/** A join of a view with the documents that it adds; the first has the number 1. */
export interface PlannedJoin {
  number: number;
  join: ViewJoin;
  relation: Relation;
}

/** How the rows of a view are computed from the documents of its sources. */
export interface ViewPlan {
  query: ViewQuery;
  /** The rows of the base with what is known of all their fields, those of joined documents included. */
  rows: Relation;
  joins: readonly PlannedJoin[];
  /** The type that is declared for a field of a row. */
  typeOf: (path: Path) => FieldType;
  /** Fields by which documents are joined and that no index is over, as `collection.field`. */
  unindexedFields: readonly string[];
}

/** Plans a view over its sources, which are all there. */
export function planView(query: ViewQuery, sources: ReadonlyMap<string, CollectionRef>): ViewPlan {
  const base = sources.get(query.base)!;
  const joins = query.joins.map((join, index) => ({
    number: index + 1,
    join,
    relation: documentsRelation(sources.get(join.collection)!, presentDocuments, index + 1),
  }));
  const joinOf = (path: Path) => query.joins.find(({ alias }) => alias === path[0]);
  return {
    query,
    rows: joinedRelation(documentsRelation(base, presentDocuments), joins),
    joins,
    typeOf: (path) => {
      const join = joinOf(path);
      if (!join) return typeOf(base, path);
      return path.length > 1 ? typeOf(sources.get(join.collection)!, path.slice(1)) : 'any';
    },
    unindexedFields: unindexedFields(query, sources),
  };
}

/** The rows of the base with the members of joins, whose names hide fields of the base. */
function joinedRelation(base: Relation, joins: readonly PlannedJoin[]): Relation {
  if (joins.length === 0) return base;
  const aliases = new Set(joins.map(({ join: { alias } }) => alias));
  const isOwn = (name: string): boolean => !aliases.has(name.split('.')[0]!);
  const merged = <T>(
    baseEntries: Iterable<readonly [string, T]>,
    joined: (relation: Relation) => Iterable<readonly [string, T]>,
  ) =>
    new Map([
      ...[...baseEntries].filter(([name]) => isOwn(name)),
      ...joins.flatMap(({ join, relation }) =>
        [...joined(relation)].map(([name, value]) => [`${join.alias}.${name}`, value] as const),
      ),
    ]);
  const dates = merged(
    [...base.dates].map((name) => [name, true] as const),
    ({ dates: joined }) => [...joined].map((name) => [name, true] as const),
  );
  return {
    ...base,
    // Several rows may have one document of the base, so its id does not decide their order.
    hasIdColumn: false,
    keys: new Map([...base.keys].filter(([name]) => isOwn(name))),
    indexes: [],
    // The words of a joined document are made of its record.
    searches: merged(base.searches, ({ searches }) =>
      [...searches].map(([name, { configuration }]) => [name, { configuration, column: undefined }] as const),
    ),
    dates: new Set(dates.keys()),
    declared: merged(base.declared, ({ declared }) => declared),
  };
}

function unindexedFields({ base, joins }: ViewQuery, sources: ReadonlyMap<string, CollectionRef>): string[] {
  const fields = new Set<string>();
  const check = (collection: string, path: Path): void => {
    const { keys } = documentsRelation(sources.get(collection)!, presentDocuments);
    const name = path.join('.');
    if (name !== 'id' && !keys.has(name)) fields.add(`${collection}.${name}`);
  };
  for (const { collection, on } of joins) {
    for (const { path, from, to } of on) {
      check(collection, path);
      check(joins.find(({ alias }) => alias === from)?.collection ?? base, to);
    }
  }
  return [...fields];
}
