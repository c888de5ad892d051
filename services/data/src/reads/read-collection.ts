import { invalid, notFound } from '@granary/shared/errors';
import { nearestName } from '@granary/shared/near-names';
import type { Call } from '@granary/shared/rpc/types';
import type { PageResponse } from '@granary/shared/gen/granary/data/v1/PageResponse';
import type { ReadRequest } from '@granary/shared/gen/granary/data/v1/ReadRequest';
import { COLLECTION_NOT_FOUND, type CollectionRef } from '../catalog/collection';
import { isSearchIndex, searchIndexes } from '../catalog/index-definition';
import { and, type Condition, type Path } from '../query/language/condition';
import { conditionsMax } from '../query/language/filter';
import type { Operator } from '../query/language/operator';
import { isOperatorName } from '../query/language/operators';
import { parseName } from '../query/language/path';
import { searchOperators } from '../query/language/search-operators';
import { isOperator } from '../query/language/value-operators';
import { conditionOfText, parametersByName, take } from '../query/language/url-filter';
import { AppDatabases } from '../query/execute/read-scheduler';
import { readPage, withFreshSource, type ReadOptions } from '../query/execute/read-page';
import { FIELD_NOT_INDEXED, overLimit } from '../query/language/query-error';
import { hasReferences } from '../query/language/references';
import {
  needsKey,
  numberOfText,
  parseCount,
  parseCursor,
  parseLimit,
  parseOffset,
  parseSelect,
  parseSortList,
} from '../query/language/paging';
import { documentsRelation, typeOf } from '../query/plan/relation';
import type { FieldType } from '../values/field-type';
import { readPriced } from './priced-read';
import { touchedPrices } from './touched-prices';
import { noView, readCounted, readTagged, statedDocuments } from './page-tag';
import { lookUpCollection, type ReadContext } from './read-context';

/**
 * Answers endpoint 3: each parameter beside the reserved ones is a filter on an indexed field. Soft-deleted documents
 * are left out. Throws COLLECTION_NOT_FOUND, UNAUTHENTICATED for a private collection, FIELD_NOT_INDEXED.
 */
export async function readCollection(
  db: ReadContext,
  request: ReadRequest,
  call: Pick<Call, 'signal'>,
): Promise<PageResponse> {
  const isFiltered = request.parameters.some(({ name }) => !reservedParameters.has(name));
  return await withFreshSource(async (isRepeated) => {
    // The counters of the collection are part of an unfiltered page, but not of whether it has changed.
    const isFresh = isRepeated || (!isFiltered && request.ifNoneMatch === undefined);
    const collection = await publicCollection(db, request, isFresh);
    const query = urlQuery(collection, request);
    const sources = {
      ...noView,
      appNumber: collection.appNumber,
      collections: [collection],
      hasReferences: hasReferences(query.find),
    };
    const readAs = (reader: ReadRequest) =>
      readTagged(db, reader, sources, async (isAfterStates) => {
        const databases = new AppDatabases(db, request, call.signal);
        if (isFiltered) return await readPage(databases, documentsRelation(collection, statedDocuments), query);
        const counted = isAfterStates ? await publicCollection(db, request, true) : collection;
        return await readCounted(databases, counted, urlQuery(counted, request));
      });
    const prices = request.mayReadPrivate ? undefined : collection.readPrices;
    const touched = prices && touchedPrices(request.appId, prices, query);
    return await (touched?.length ? readPriced(touched, request, readAs) : readAs(request));
  });
}

async function publicCollection(db: ReadContext, request: ReadRequest, isFresh: boolean): Promise<CollectionRef> {
  const collection = await lookUpCollection(db, request.appId, request.name, isFresh);
  if (!collection) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${request.name}`);
  if (collection.readAccess === 'private' && !request.mayReadPrivate) throw needsKey('collection');
  return collection;
}

function urlQuery(collection: CollectionRef, request: ReadRequest): ReadOptions {
  const parameters = parametersByName(request.parameters);
  const offset = parseOffset(numberOfText(take(parameters, 'offset')));
  const sort = parseSortList(take(parameters, 'sort'));
  for (const { path } of sort) assertIndexed(collection, path.join('.'), 'sort');
  const projection = parseSelect(take(parameters, 'select'));
  const limit = parseLimit(numberOfText(take(parameters, 'limit')));
  const cursor = parseCursor(take(parameters, 'cursor'), offset);
  const count = parseCount(take(parameters, 'count'));
  const conditions: Condition[] = [];
  for (const [name, value] of parameters) {
    const { path, operator, type } = urlFilterOf(collection, name);
    conditions.push(conditionOfText(path, operator, value, type, name));
  }
  if (conditions.length > conditionsMax) {
    throw overLimit('parameters', `may hold at most ${conditionsMax} conditions`);
  }
  return { find: and(...conditions), projection, sort, limit, offset, cursor, count };
}

/** Parameters of endpoint 3 that are no filters. */
const reservedParameters = new Set(['select', 'sort', 'limit', 'offset', 'cursor', 'count']);

/** The kind of condition that the name of a parameter stands for in a collection. */
interface UrlFilter {
  path: Path;
  operator: Operator;
  type: FieldType;
}

/**
 * The filters by the names of parameters. Their number is bounded, because only fields that an index is over are kept,
 * with any operator.
 */
const urlFilters = new WeakMap<CollectionRef, Map<string, UrlFilter>>();

function urlFilterOf(collection: CollectionRef, name: string): UrlFilter {
  let filtersByName = urlFilters.get(collection);
  if (!filtersByName) urlFilters.set(collection, (filtersByName = new Map<string, UrlFilter>()));
  let filter = filtersByName.get(name);
  if (!filter) {
    const { path, operator = isOperator } = fieldOf(collection, name);
    // A search is refused where it is compiled, unless a full-text index is over its field.
    if (!searchOperators.includes(operator)) assertIndexed(collection, path.join('.'), name);
    filter = { path, operator, type: typeOf(collection, path) };
    if (isIndexed(collection, path.join('.')) || isSearched(collection, path.join('.')))
      filtersByName.set(name, filter);
  }
  return filter;
}

/** A name that is no path cannot be an indexed field either, and is refused as such. */
function fieldOf(collection: CollectionRef, name: string): ReturnType<typeof parseName> {
  if (name === '' || name.split('.').includes('')) assertIndexed(collection, name, name);
  return parseName(name, name);
}

const indexedFields = new WeakMap<CollectionRef, ReadonlySet<string>>();

function indexedFieldsOf(collection: CollectionRef): ReadonlySet<string> {
  let fields = indexedFields.get(collection);
  if (!fields) {
    // The words of a full-text index serve neither equality nor ranges.
    const usable = collection.indexes.filter((index) => index.status !== 'failed' && !isSearchIndex(index));
    fields = new Set(['id', ...usable.flatMap((index) => index.fields)]);
    indexedFields.set(collection, fields);
  }
  return fields;
}

const isIndexed = (collection: CollectionRef, field: string): boolean => indexedFieldsOf(collection).has(field);

const isSearched = ({ indexes }: CollectionRef, field: string): boolean =>
  searchIndexes(indexes).some((index) => index.fieldName === field);

function assertIndexed(collection: CollectionRef, field: string, parameter: string): void {
  if (isIndexed(collection, field)) return;
  const meant = meantParameter(collection, parameter);
  const text = `${field} is not an indexed field of ${collection.name}${meant === undefined ? '' : `: ${meant}`}`;
  const details = { [parameter]: [text], indexed_fields: [...indexedFieldsOf(collection)] };
  throw invalid(text, details, FIELD_NOT_INDEXED);
}

/** The spelling that works, where a parameter is written as other services take it, or misspelt. */
function meantParameter(collection: CollectionRef, name: string): string | undefined {
  if (name === 'page' || name === 'skip') return 'write offset=… for the records before the page';
  const { path, operator } = /^(?<path>.+?)(?:\.|\[|__?)\$?(?<operator>\w+)\]?$/.exec(name)?.groups ?? {};
  if (path !== undefined && isIndexed(collection, path) && isOperatorName(operator!))
    return `write ${path}.$${operator}=…`;
  const near = nearestName(name, [...indexedFieldsOf(collection), ...reservedParameters]);
  return near === undefined ? undefined : `did you mean ${near}?`;
}
