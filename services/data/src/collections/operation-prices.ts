import { invalid } from '@granary/shared/errors';
import type { IndexPrice } from '@granary/shared/gen/granary/data/v1/IndexPrice';
import type { OperationPrice } from '@granary/shared/gen/granary/data/v1/OperationPrice';
import type { OperationPrices } from '@granary/shared/gen/granary/data/v1/OperationPrices';
import type { OperationPricesRequest } from '@granary/shared/gen/granary/data/v1/OperationPricesRequest';
import { JsonNumber, type JsonValue } from '@granary/shared/json/value';
import { maxUtia } from '@granary/shared/money';
import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { findApp } from '../catalog/app';
import { readJsonText } from '../query/language/paging';
import { indexPrice } from './index-prices';

interface PricedIndex {
  name: string;
  read_access: string;
  field_name: string;
  fields: string[] | null;
  index_type: string;
  price_config_text: string | null;
  read_price_config_text: string | null;
}

/**
 * What the price of an operation on a collection depends on. Of a private collection callers who may not read it get
 * what they get of one that does not exist. Throws APP_NOT_FOUND, VALIDATION_FAILED, LIMIT_EXCEEDED.
 */
export async function getOperationPrices(db: Queryable, request: OperationPricesRequest): Promise<OperationPrices> {
  const documents = request.documents.length === 0 ? [] : documentsOf(request.documents);
  const app = await findApp(db, request.appId);
  const found = await rows<PricedIndex>(
    db,
    sql`select i.name, c.read_access, i.field_name, i.fields, i.index_type, i.price_config_text, i.read_price_config_text
        from collection c join document_index i on i.collection_number = c.number
        where c.app_number = ${app.number} and c.name = ${request.collection} and c.deleted_at is null
          and i.status <> 'failed' order by i.number`,
  );
  const visible = found.filter((index) => index.read_access === 'public' || request.mayReadPrivate);
  return {
    indexedFields: [...new Set(visible.flatMap((index) => index.fields ?? [index.field_name]))],
    prices: visible.flatMap((index) => pricesOfIndex(index, request.isWrite, documents)),
  };
}

function documentsOf(bytes: Buffer): readonly JsonValue[] {
  const value = readJsonText(bytes, 'data');
  return Array.isArray(value) ? value : [value];
}

function pricesOfIndex(index: PricedIndex, isWrite: boolean, documents: readonly JsonValue[]): OperationPrice[] {
  const price = indexPrice(isWrite ? index.price_config_text : index.read_price_config_text);
  const names = { index: index.name, field: index.field_name };
  const share = appShare(price);
  const prices: OperationPrice[] = [];
  const amount = price?.pricingModel === 'per_kb' ? price.pricePerKbUtia : price?.pricePerAccessUtia;
  if (price?.pricingModel !== undefined && amount !== undefined) {
    prices.push({ ...names, ...share, type: price.pricingModel, amountUtia: String(amount) });
  }
  if (isWrite && index.index_type === 'price' && documents.length > 0) {
    const value = valueOf(documents, index.field_name);
    prices.push({ ...names, ...share, type: 'field_value', amountUtia: value.toString() });
  }
  return prices;
}

function appShare(price: IndexPrice | undefined): Pick<OperationPrice, 'appSharePpm'> {
  const { appOwnerPercentage: app, platformPercentage: platform } = price ?? {};
  const share = app ?? (platform === undefined ? undefined : 1 - platform);
  return share === undefined ? {} : { appSharePpm: Math.round(share * 1_000_000) };
}

/** The sum of a field over documents, in utia. Documents that lack it add nothing. Throws VALIDATION_FAILED. */
function valueOf(documents: readonly JsonValue[], field: string): bigint {
  let sum = 0n;
  for (const document of documents) {
    const value = at(document, field.split('.'));
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
function at(value: JsonValue, path: readonly string[]): JsonValue | undefined {
  let found: JsonValue | undefined = value;
  for (const step of path) {
    if (found instanceof Map) found = found.get(step);
    else if (Array.isArray(found) && /^\d{1,9}$/.test(step)) found = found[Number(step)];
    else return undefined;
  }
  return found;
}
