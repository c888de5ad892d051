import { execute, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { CreateIndexRequest } from '@granary/shared/gen/granary/data/v1/CreateIndexRequest';
import { priceText } from '../catalog/read-price';
import type { IndexPrices } from '../tables/define-index';

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
