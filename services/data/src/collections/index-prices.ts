import { execute, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { CreateIndexRequest } from '@granary/shared/gen/granary/data/v1/CreateIndexRequest';
import { bumpCatalogRevision } from '../catalog/app-lock';
import { priceText } from '../catalog/read-price';
import type { IndexPrices } from '../tables/define-index';

/** The prices that a request for a new index gives it. */
export const pricesOf = ({ priceConfig, readPriceConfig }: CreateIndexRequest): IndexPrices => ({
  priceConfigText: priceConfig ? priceText(priceConfig) : null,
  readPriceConfigText: readPriceConfig ? priceText(readPriceConfig) : null,
});

/** Changes those prices of an index that a request gives. */
export async function changePrices(
  tx: Connection,
  { appNumber, number }: { appNumber: bigint; number: bigint },
  { priceConfig, readPriceConfig }: CreateIndexRequest,
): Promise<void> {
  if (!priceConfig && !readPriceConfig) return;
  const price = priceConfig ? sql`${priceText(priceConfig)}::text` : sql`price_config_text`;
  const readPrice = readPriceConfig ? sql`${priceText(readPriceConfig)}::text` : sql`read_price_config_text`;
  await execute(
    tx,
    sql`update document_index set price_config_text = ${price}, read_price_config_text = ${readPrice}
        where number = ${number}`,
  );
  await bumpCatalogRevision(tx, appNumber);
}
