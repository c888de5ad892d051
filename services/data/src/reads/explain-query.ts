import type { Call } from '@granary/shared/rpc/types';
import { readJson } from '@granary/shared/json/value';
import type { ExplainQueryRequest } from '@granary/shared/gen/granary/data/v1/ExplainQueryRequest';
import type { CollectionRef } from '../catalog/collection';
import { translateRequestErrors } from '../json/request-errors';
import { assertSortable, storedFilter } from '../query/execute/encrypted-read';
import { resolveReferences } from '../query/execute/references';
import { hintUnknownFields } from '../query/execute/unknown-fields';
import { explainPage, type PostgresNode } from '../query/execute/explain-page';
import { joinedPlan, withFreshSource, type ReadOptions } from '../query/execute/read-page';
import { allJoins, modelName } from '../query/language/joins';
import { bodyDepthMax, refuseUnknown } from '../query/language/paging';
import { isAll } from '../query/language/condition';
import { invalidQuery } from '../query/language/query-error';
import { positionOfRecord } from '../query/execute/cursor-position';
import { decodeCursor } from '../query/plan/cursor';
import { describePlan } from '../query/plan/describe-plan';
import { adviseIndex, adviseJoinIndex, scannedByJoins } from '../query/plan/index-advice';
import { effectiveSort } from '../query/plan/order';
import { planPage, type PagePlan } from '../query/plan/page-plan';
import { findRoot, parseListQuery } from './list-documents';
import { lookUpCollection, type ReadContext } from './read-context';
import { resolveJoins } from './resolve-joins';

/** From this offset on, a cursor is advised. */
const offsetAdvised = 1_000;

/** The options with which /list joins. */
const joinOptions = { includeDeleted: true, isFresh: false };

interface Hint {
  code: 'MISSING_INDEX' | 'UNINDEXED_SORT' | 'MIXED_SORT' | 'EXACT_COUNT' | 'LARGE_OFFSET' | 'UNKNOWN_FIELD';
  message: string;
  /** The field that is known nowhere. */
  field?: string;
  /** The collection that a join scans. */
  collection?: string;
  /** The fields of an index that would serve. */
  fields?: readonly string[];
}

/**
 * Explains how a query, with the members of POST /list, would be read, without running it: JSON text of `{collection,
 * indexes_used, plan, cost, access, hints}`. Nothing internal is in it: names of indexes are those of the app, and
 * conditions are left out. Throws what listDocuments() throws.
 */
export async function explainQuery(
  db: ReadContext,
  { appId, collection: name, body: text }: ExplainQueryRequest,
  call: Pick<Call, 'signal'>,
): Promise<Buffer> {
  const body = translateRequestErrors(() => readJson(text, { maxDepth: bodyDepthMax }));
  if (!(body instanceof Map)) throw invalidQuery('body', 'must be an object');
  refuseUnknown(body.keys(), new Set(['query']));
  const query = body.get('query');
  if (!(query instanceof Map)) throw invalidQuery('query', 'must be an object with the members of a query of /list');
  if ((query.get('root') ?? `${appId}::${name}`) !== `${appId}::${name}`) {
    throw invalidQuery('query.root', 'must be the collection of the path, or absent');
  }
  const options = parseListQuery(query);
  return withFreshSource(async () => {
    const { relation, sort: defaultSort } = await findRoot(db, appId, name, options.includeHistory, true);
    const sort = options.sort.length > 0 ? options.sort : defaultSort;
    const { terms, descending } = effectiveSort(relation, sort);
    const scope = { source: relation, find: options.find, terms, descending };
    const place = options.cursor === undefined ? undefined : decodeCursor(scope, options.cursor);
    const { limit, offset } = options;
    assertSortable(relation, sort);
    const find = storedFilter(relation, await resolveReferences(db.fast, appId, options.find), true);
    const after = place && 'valuesDigest' in place ? await positionOfRecord(db.pool, scope, find, place) : place;
    const page = planPage(relation, { find, sort, limit: limit + 1, offset, after });
    const joined = await resolveJoins(db, { appId, mayReadPrivate: true }, options, {
      ...joinOptions,
      parent: relation,
    });
    const plan = joined ? joinedPlan(page, joined.joins) : page;
    const explain = () => explainPage(db.pool, plan);
    const { chosen, withoutScan } = await db.schedulers.scans.run(appId, explain, { signal: call.signal });
    const names = new Set([name, ...allJoins(options.joins).map((join) => modelName(appId, join))]);
    const unknown = await hintUnknownFields(db.pool, relation, options.find, true);
    const indexNames = namesOf(await Promise.all([...names].map((one) => lookUpCollection(db, appId, one, false))));
    return Buffer.from(
      JSON.stringify({
        collection: name,
        indexes_used: usedIndexes(withoutScan, plan, indexNames),
        plan: planNode(chosen, indexNames),
        cost: { startup: chosen['Startup Cost'], total: chosen['Total Cost'] },
        access: describePlan(plan),
        hints: [...unknown, ...hintsOf(plan, options)],
      }),
    );
  });
}

/** The names of the app for the indexes of Postgres. */
function namesOf(collections: ReadonlyArray<CollectionRef | undefined>): (postgresName: string) => string {
  const indexes = collections.flatMap((collection) => collection?.indexes ?? []);
  const names = new Map(indexes.map(({ number, name }) => [number.toString(), name]));
  return (postgresName) =>
    isOfDataset(postgresName)
      ? 'data_set'
      : (names.get(/^[inq]_(\d+)$/.exec(postgresName)?.[1] ?? '') ?? 'primary_key');
}

/** Whether an index is one of the values of a data set, see tables d_<number>. */
const isOfDataset = (postgresName: string): boolean => postgresName.startsWith('d_');

/** The indexes that find the matches, or give their order. A scan of a whole index only to avoid the table is none. */
function usedIndexes(root: PostgresNode, plan: PagePlan, nameOf: (postgresName: string) => string): string[] {
  const used = new Set<string>();
  const isInIdOrder = isAll(plan.filter) && plan.access.order.terms.length === 0;
  const visit = (node: PostgresNode): void => {
    if (node['Index Name'] !== undefined && !isOfDataset(node['Index Name'])) {
      const name = nameOf(node['Index Name']);
      const givesOrder = name === plan.access.index?.index.name || (name === 'primary_key' && isInIdOrder);
      if (node['Index Cond'] !== undefined || givesOrder) used.add(name);
    }
    node.Plans?.forEach(visit);
  };
  visit(root);
  return [...used];
}

/** A node with what helps a user of the API: no conditions, tables or columns. */
function planNode(node: PostgresNode, nameOf: (postgresName: string) => string): object {
  return {
    node: node['Node Type'],
    ...(node['Index Name'] === undefined ? {} : { index: nameOf(node['Index Name']) }),
    ...(node['Scan Direction'] === undefined ? {} : { direction: node['Scan Direction'].toLowerCase() }),
    estimated_rows: node['Plan Rows'],
    startup_cost: node['Startup Cost'],
    total_cost: node['Total Cost'],
    plans: (node.Plans ?? []).map((child) => planNode(child, nameOf)),
  };
}

function hintsOf(plan: PagePlan, { count, offset, cursor }: ReadOptions): Hint[] {
  const { isNarrowed, isSorted, isMixed, fields } = adviseIndex(plan);
  const hints: Hint[] = [];
  const index = fields.length === 0 ? '' : `; an index over ${fields.join(', ')} would serve it`;
  const advised = fields.length === 0 ? {} : { fields };
  if (!isAll(plan.filter) && !isNarrowed) {
    const message = `No index narrows the matches, so all ${plan.relation.rowCount} documents are read${index}`;
    hints.push({ code: 'MISSING_INDEX', message, ...advised });
  }
  hints.push(...joinHints(plan));
  if (isMixed) {
    const message = 'The sort mixes directions, which no index has: the matches are sorted for each page';
    hints.push({ code: 'MIXED_SORT', message });
  } else if (isSorted) {
    const message = `No index has the order, so the matches are sorted for each page${index}`;
    hints.push({ code: 'UNINDEXED_SORT', message, ...advised });
  }
  if (count === 'exact' && !isAll(plan.filter)) {
    const message = 'total counts all matches unless the page is the last one; count=none leaves it out';
    hints.push({ code: 'EXACT_COUNT', message });
  }
  if (offset >= offsetAdvised && cursor === undefined) {
    const message = `The ${offset} documents before the page are read and skipped; a cursor begins at the page`;
    hints.push({ code: 'LARGE_OFFSET', message });
  }
  return hints;
}

/** A missing index for each join that scans its collection. */
function joinHints({ joins = [] }: PagePlan): Hint[] {
  return scannedByJoins(joins).map((plan) => {
    const { join, relation } = plan;
    const fields = adviseJoinIndex(plan);
    const index = fields.length === 0 ? '' : `; an index over ${fields.join(', ')} of ${join.model} would serve it`;
    const message = `The join ${join.alias} scans all ${relation.tableRowCount} documents of ${join.model}${index}`;
    return { code: 'MISSING_INDEX', message, collection: join.model, ...(fields.length === 0 ? {} : { fields }) };
  });
}
