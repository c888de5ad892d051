import { ServiceError } from '@granary/shared/errors';
import type { PageResponse } from '@granary/shared/gen/granary/data/v1/PageResponse';
import type { ReadRequest } from '@granary/shared/gen/granary/data/v1/ReadRequest';
import { maxUtia } from '@granary/shared/money';
import { PAYMENT_REQUIRED, type ReadPrice } from '../catalog/read-price';

const bytesPerKb = 1_024n;

/**
 * Serves a read whose prices are `prices`, the highest of which counts: with the page once as much is paid, without an
 * entity tag. A price by size is known when the page is, so that one is read to be measured. Throws PAYMENT_REQUIRED with
 * the amount.
 */
export async function readPriced(
  prices: readonly ReadPrice[],
  request: ReadRequest,
  read: (request: ReadRequest) => Promise<PageResponse>,
): Promise<PageResponse> {
  const paidUtia = request.paidUtia === undefined ? 0n : BigInt(request.paidUtia);
  if (prices.every(({ model }) => model === 'per_access')) assertPaid(prices, 0, paidUtia);
  // That a page has not changed is something to pay for too.
  const { ifNoneMatch: _, ...unconditional } = request;
  const { json } = await read(unconditional);
  assertPaid(prices, json.length, paidUtia);
  return { json, etag: '' };
}

function assertPaid(prices: readonly ReadPrice[], sizeBytes: number, paidUtia: bigint): void {
  let amount = 0n;
  let highest: ReadPrice | undefined;
  for (const price of prices) {
    const due = dueOf(price, sizeBytes);
    if (due <= amount) continue;
    amount = due;
    highest = price;
  }
  if (highest === undefined || amount <= paidUtia) return;
  const { model, appSharePpm } = highest;
  throw new ServiceError('FAILED_PRECONDITION', PAYMENT_REQUIRED, `The read costs ${amount} utia`, {
    details: {
      amount_utia: Number(amount),
      pricing_model: model,
      fields: [...new Set(prices.map(({ field }) => field))],
      ...(model === 'per_kb' && { size_bytes: sizeBytes }),
      ...(appSharePpm !== undefined && { app_share_ppm: appSharePpm }),
    },
  });
}

/** Whole utia, rounded up. Nobody has more than `maxUtia`. */
function dueOf({ model, amountUtia }: ReadPrice, sizeBytes: number): bigint {
  if (model === 'per_access') return amountUtia;
  const due = (amountUtia * BigInt(sizeBytes) + bytesPerKb - 1n) / bytesPerKb;
  return due < maxUtia ? due : maxUtia;
}
