import { ServiceError } from '@granary/shared/errors';
import type { Price } from '@granary/shared/gen/granary/data/v1/Price';
import type { PageResponse } from '@granary/shared/gen/granary/data/v1/PageResponse';
import type { ReadRequest } from '@granary/shared/gen/granary/data/v1/ReadRequest';
import { maxUtia } from '@granary/shared/money/amounts';
import { message } from '@granary/shared/rpc/types';
import { PAYMENT_REQUIRED, type ReadPrice } from '../catalog/read-price';

const bytesPerKb = 1_024n;

/**
 * Serves a read whose prices are `prices`, the highest of which counts: with the page once as much is paid, without an
 * entity tag, else with the price. A price by size is known only with the page, which is then read to be measured.
 * Throws PAYMENT_REQUIRED where the caller does not accept a price.
 */
export async function readPriced(
  prices: readonly ReadPrice[],
  request: ReadRequest,
  read: (request: ReadRequest) => Promise<PageResponse>,
): Promise<PageResponse> {
  const paidUtia = request.paidUtia === undefined ? 0n : BigInt(request.paidUtia);
  const fixedPrice = prices.every(({ model }) => model === 'per_access') ? highestPrice(prices, 0) : undefined;
  if (isMore(fixedPrice, paidUtia)) return unpaid(fixedPrice, request);
  // A caller also has to pay to learn that a page has not changed, so the read is unconditional.
  const { ifNoneMatch: _, ...unconditional } = request;
  const { json } = await read(unconditional);
  const price = fixedPrice ?? highestPrice(prices, json.length);
  return isMore(price, paidUtia) ? unpaid(price, request) : { json, etag: '' };
}

const isMore = (price: Price | undefined, paidUtia: bigint): price is Price =>
  price !== undefined && BigInt(price.amountUtia) > paidUtia;

const noPage = Buffer.alloc(0);

function unpaid(price: Price, { acceptsPrice }: ReadRequest): PageResponse {
  if (acceptsPrice) return { json: noPage, etag: '', price };
  // A gateway of the release before reads the price from the error.
  const { amountUtia, pricingModel, fields, sizeBytes, appSharePpm } = price;
  throw new ServiceError('FAILED_PRECONDITION', PAYMENT_REQUIRED, `The read costs ${amountUtia} utia`, {
    details: {
      amount_utia: Number(amountUtia),
      pricing_model: pricingModel,
      fields,
      ...(sizeBytes !== undefined && { size_bytes: Number(sizeBytes) }),
      ...(appSharePpm !== undefined && { app_share_ppm: appSharePpm }),
    },
  });
}

/** The highest of the prices of a page; undefined where none of them comes to anything. */
function highestPrice(prices: readonly ReadPrice[], sizeBytes: number): Price | undefined {
  let amount = 0n;
  let highest: ReadPrice | undefined;
  for (const price of prices) {
    const due = dueOf(price, sizeBytes);
    if (due <= amount) continue;
    amount = due;
    highest = price;
  }
  if (highest === undefined) return undefined;
  const { model, appSharePpm } = highest;
  return message<Price>({
    amountUtia: amount.toString(),
    pricingModel: model,
    fields: [...new Set(prices.map(({ field }) => field))],
    sizeBytes: model === 'per_kb' ? String(sizeBytes) : undefined,
    appSharePpm,
  });
}

/** Whole utia, rounded up. Nobody has more than `maxUtia`. */
function dueOf({ model, amountUtia }: ReadPrice, sizeBytes: number): bigint {
  if (model === 'per_access') return amountUtia;
  const due = (amountUtia * BigInt(sizeBytes) + bytesPerKb - 1n) / bytesPerKb;
  return due < maxUtia ? due : maxUtia;
}
