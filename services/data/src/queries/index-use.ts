import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../catalog/collection';
import { isSearchIndex, type IndexDefinition } from '../catalog/index-definition';
import type { Condition } from '../query/language/condition';
import { modelName, allJoins } from '../query/language/joins';
import { readJsonText } from '../query/language/paging';
import { isOperator } from '../query/language/value-operators';
import { keyedAs } from '../query/plan/narrowing';
import { parseBaseQuery, parseParameters, type BaseQuery, type QueryParameters } from './definition';

/** Queries that a refusal names, at most. */
const namesMax = 10;

interface QueryRow {
  name: string;
  source_collection: string;
  base_query_text: string;
  parameters_text: string;
}

/**
 * The names of the predefined queries, in any version, that find or sort documents of a collection by an index and that
 * no other index of the collection would serve as well. Ten at most.
 */
export async function queriesNeeding(
  db: Queryable,
  collection: CollectionRef,
  index: IndexDefinition,
): Promise<string[]> {
  if (index.status === 'failed') return [];
  const { appNumber, name: collectionName } = collection;
  const queries = await rows<QueryRow>(
    db,
    sql`select name, source_collection, base_query_text, parameters_text from query
        where app_number = ${appNumber} and (source_collection = ${collectionName} or ${collectionName} = any(joined_collections))
        order by name, number`,
  );
  const needing = queries.filter((query) => needs(usedFields(query, collection), collection, index));
  return [...new Set(needing.map(({ name }) => name))].slice(0, namesMax);
}

/** The fields by which a query looks documents of one collection up. */
interface UsedFields {
  /** The fields that an index narrows or sorts by. */
  keyed: ReadonlySet<string>;
  /** The fields with `$search`. */
  searched: ReadonlySet<string>;
}

function usedFields(query: QueryRow, { appId, name }: CollectionRef): UsedFields {
  const base = parseBaseQuery(readJsonText(Buffer.from(query.base_query_text), 'base_query'));
  const parameters = parseParameters(readJsonText(Buffer.from(query.parameters_text), 'parameters'), base.limit);
  const joined = allJoins(base.joins).filter((join) => modelName(appId, join) === name);
  const used = { keyed: new Set<string>(), searched: new Set<string>() };
  for (const { find } of joined) addConditions(find, used);
  if (query.source_collection === name) addSource(base, parameters, used);
  return used;
}

function addSource({ find, sort }: BaseQuery, { filters }: QueryParameters, used: MutableFields): void {
  addConditions(find, used);
  for (const { path } of sort) used.keyed.add(path.join('.'));
  for (const { target } of filters.values()) {
    const { path, operator = isOperator } = target;
    const isSearch = operator.spellings.includes('$search');
    (isSearch ? used.searched : used.keyed).add(path.join('.'));
  }
}

type MutableFields = { [Kind in keyof UsedFields]: Set<string> };

function addConditions(condition: Condition, used: MutableFields): void {
  if ('conditions' in condition) {
    for (const one of condition.conditions) addConditions(one, used);
    return;
  }
  const { kind, path } = condition;
  if (kind === 'search') used.searched.add(path.join('.'));
  else if (kind === 'reference' || keyedAs(condition) !== undefined) used.keyed.add(path.join('.'));
}

/** Whether an index serves a query with fields by which no other one begins. */
function needs({ keyed, searched }: UsedFields, { indexes }: CollectionRef, index: IndexDefinition): boolean {
  // A field has one full-text index.
  if (isSearchIndex(index)) return searched.has(index.fieldName);
  const firstUnused = index.fields.findIndex((field) => !keyed.has(field));
  const served = firstUnused < 0 ? index.fields : index.fields.slice(0, firstUnused);
  if (served.length === 0) return false;
  return !indexes.some(
    (other) =>
      other.number !== index.number &&
      other.status !== 'failed' &&
      !isSearchIndex(other) &&
      served.every((field, index) => other.fields[index] === field),
  );
}
