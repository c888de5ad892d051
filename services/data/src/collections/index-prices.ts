import { message } from '@granary/shared/rpc/types';
import type { IndexPrice } from '@granary/shared/gen/granary/data/v1/IndexPrice';
import { execute, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { CreateIndexRequest } from '@granary/shared/gen/granary/data/v1/CreateIndexRequest';
import type { IndexPrices } from '../tables/define-index';

/** A price as it is kept: JSON of its members; null for one that has none. */
function priceText(price: IndexPrice): string | null {
  const given = Object.entries(price).filter(([, value]) => value !== undefined && value !== null);
  return given.length === 0 ? null : JSON.stringify(Object.fromEntries(given));
}

/** A price that is kept, as a message. */
export const indexPrice = (text: string | null): IndexPrice | undefined =>
  text === null ? undefined : message<IndexPrice>(JSON.parse(text) as IndexPrice);

/** The prices that a request for a new index gives it. */
export const pricesOf = ({ priceConfig, readPriceConfig }: CreateIndexRequest): IndexPrices => ({
  priceConfigText: priceConfig ? priceText(priceConfig) : null,
  readPriceConfigText: readPriceConfig ? priceText(readPriceConfig) : null,
});

/** Changes those prices of an index that a request gives. */
export async function changePrices(
  db: Queryable,
  number: bigint,
  { priceConfig, readPriceConfig }: CreateIndexRequest,
): Promise<void> {
  if (priceConfig) {
    await execute(
      db,
      sql`update document_index set price_config_text = ${priceText(priceConfig)} where number = ${number}`,
    );
  }
  if (readPriceConfig) {
    const text = priceText(readPriceConfig);
    await execute(db, sql`update document_index set read_price_config_text = ${text} where number = ${number}`);
  }
}
