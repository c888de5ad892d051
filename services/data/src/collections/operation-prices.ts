import { invalid } from '@granary/shared/errors';
import type { IndexPrice } from '@granary/shared/gen/granary/data/v1/IndexPrice';
import type { OperationPrice } from '@granary/shared/gen/granary/data/v1/OperationPrice';
import type { OperationPrices } from '@granary/shared/gen/granary/data/v1/OperationPrices';
import type { OperationPricesRequest } from '@granary/shared/gen/granary/data/v1/OperationPricesRequest';
import { JsonNumber, type JsonValue } from '@granary/shared/json/value';
import { maxUtia } from '@granary/shared/money/amounts';
import { row, rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { findApp } from '../catalog/app';
import { amountOf, appShareOf, storedPrice } from '../catalog/read-price';
import { readJsonText } from '../query/language/paging';
import type { FastContext } from '../postgres/databases';

interface PricedCollection {
  number: bigint;
  read_price_config_text: string | null;
}

interface PricedIndex {
  name: string;
  status: string;
  field_name: string;
  fields: string[] | null;
  index_type: string;
  price_config_text: string | null;
  read_price_config_text: string | null;
}

/**
 * Returns the indexed fields and the prices that the price of an operation on a collection depends on. A caller who may
 * not read a private collection gets the same as for one that does not exist. Throws APP_NOT_FOUND, VALIDATION_FAILED,
 * LIMIT_EXCEEDED.
 */
export async function getOperationPrices(
  { fast: db }: FastContext,
  request: OperationPricesRequest,
): Promise<OperationPrices> {
  const documents = request.documents.length === 0 ? [] : documentsOf(request.documents);
  const app = await findApp(db, request.appId);
  const collection = await row<PricedCollection>(
    db,
    sql`select number, read_price_config_text from collection
        where app_number = ${app.number} and name = ${request.collection} and deleted_at is null
          and (read_access = 'public' or ${request.mayReadPrivate}::boolean)`,
  );
  if (!collection) return { indexedFields: [], prices: [] };
  const indexes = await pricedIndexes(db, collection.number);
  const written = writtenIndexes(indexes);
  return {
    indexedFields: fieldsOf(written),
    prices: [
      ...(request.isWrite ? [] : pricesOfCollection(collection, request.collection)),
      ...(request.isWrite ? written : indexes).flatMap((index) => pricesOfIndex(index, request.isWrite, documents)),
    ],
  };
}

/** The prices that the indexes of a collection set for writes. */
export interface IndexPrices {
  /** Each once. */
  indexedFields: readonly string[];
  /** Whether values of the documents are prices. */
  hasValues: boolean;
  /** The prices of writing documents. Throws VALIDATION_FAILED for a value that is no amount, LIMIT_EXCEEDED. */
  pricesFor(documents: readonly JsonValue[]): OperationPrice[];
}

export async function readPricesOfIndexes(db: Queryable, collectionNumber: bigint): Promise<IndexPrices> {
  const written = writtenIndexes(await pricedIndexes(db, collectionNumber));
  return {
    indexedFields: fieldsOf(written),
    hasValues: written.some(({ index_type: type }) => type === 'price'),
    pricesFor: (documents) => written.flatMap((index) => pricesOfIndex(index, true, documents)),
  };
}

const pricedIndexes = (db: Queryable, collectionNumber: bigint): Promise<PricedIndex[]> =>
  rows<PricedIndex>(
    db,
    sql`select name, status, field_name, fields, index_type, price_config_text, read_price_config_text
        from document_index where collection_number = ${collectionNumber} order by number`,
  );

/** An index whose build failed has no entries, but the price of its field as long as it is there. */
const writtenIndexes = (indexes: readonly PricedIndex[]) => indexes.filter(({ status }) => status !== 'failed');

const fieldsOf = (indexes: readonly PricedIndex[]): string[] => [
  ...new Set(indexes.flatMap((index) => index.fields ?? [index.field_name])),
];

const pricesOfCollection = ({ read_price_config_text: text }: PricedCollection, name: string): OperationPrice[] =>
  operationPrices(storedPrice(text), { index: name, field: '*' });

/** The price that is asked, if there is one. */
function operationPrices(price: IndexPrice | undefined, names: { index: string; field: string }): OperationPrice[] {
  const [amount, appSharePpm] = [amountOf(price), appShareOf(price)];
  if (amount === undefined) return [];
  const share = appSharePpm === undefined ? {} : { appSharePpm };
  return [{ ...names, ...share, type: price!.pricingModel!, amountUtia: amount.toString() }];
}

function documentsOf(bytes: Buffer): readonly JsonValue[] {
  const value = readJsonText(bytes, 'data');
  return Array.isArray(value) ? value : [value];
}

function pricesOfIndex(index: PricedIndex, isWrite: boolean, documents: readonly JsonValue[]): OperationPrice[] {
  const price = storedPrice(isWrite ? index.price_config_text : index.read_price_config_text);
  const names = { index: index.name, field: index.field_name };
  const prices = operationPrices(price, names);
  if (isWrite && index.index_type === 'price' && documents.length > 0) {
    const [appSharePpm, value] = [appShareOf(price), valueOf(documents, index.field_name)];
    const share = appSharePpm === undefined ? {} : { appSharePpm };
    prices.push({ ...names, ...share, type: 'field_value', amountUtia: value.toString() });
  }
  return prices;
}

/** The sum of a field over documents, in utia. Documents that lack it add nothing. Throws VALIDATION_FAILED. */
function valueOf(documents: readonly JsonValue[], field: string): bigint {
  let sum = 0n;
  for (const document of documents) {
    const value = valueAtPath(document, field.split('.'));
    if (value === undefined || value === null) continue;
    const amount = value instanceof JsonNumber && value.isInteger ? value.toNumber() : NaN;
    if (!(amount >= 0 && amount <= Number.MAX_SAFE_INTEGER)) {
      const message = 'must be a whole number of utia, at most 2^53-1';
      throw invalid(`data: ${field} ${message}`, { [`data.${field}`]: [message] });
    }
    sum += BigInt(amount);
  }
  if (sum <= maxUtia) return sum;
  throw invalid(
    'The values of a price index exceed 2^53-1 utia',
    { [`data.${field}`]: ['are too large'] },
    LIMIT_EXCEEDED,
  );
}

/** The value at a path, through objects and by numbers through arrays. */
function valueAtPath(value: JsonValue, path: readonly string[]): JsonValue | undefined {
  let current: JsonValue | undefined = value;
  for (const step of path) {
    if (current instanceof Map) current = current.get(step);
    else if (Array.isArray(current) && /^\d{1,9}$/.test(step)) current = current[Number(step)];
    else return undefined;
  }
  return current;
}
