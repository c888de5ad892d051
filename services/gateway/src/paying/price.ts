import { ServiceError } from '@granary/shared/errors';
import type { Price } from '@granary/shared/gen/granary/data/v1/Price';
import { message } from '@granary/shared/rpc/types';

export type { Price };

const subjects = { read: 'The read', write: 'The write', index: 'An encrypted index' };

export type PricedKind = keyof typeof subjects;

/** The price in a sentence. */
export const priceSentence = (kind: PricedKind, { amountUtia }: Price): string =>
  `${subjects[kind]} costs ${amountUtia} utia`;

/** The price as `details` of a 402 show it. */
export const priceDetails = ({ amountUtia, pricingModel, fields, sizeBytes }: Price): Record<string, unknown> => ({
  amount_utia: Number(amountUtia),
  pricing_model: pricingModel,
  fields,
  ...(sizeBytes !== undefined && { size_bytes: Number(sizeBytes) }),
});

/** Whether a request was refused since it is not paid. */
export const isUnpaid = (error: unknown): error is ServiceError =>
  error instanceof ServiceError && error.reason === 'PAYMENT_REQUIRED';

/** The price of a read in an error of data of the release before, which takes no `accepts_price`. */
export function priceIn({ details }: ServiceError): Price {
  const share = details['app_share_ppm'];
  const size = details['size_bytes'];
  return message<Price>({
    amountUtia: String(details['amount_utia']),
    pricingModel: String(details['pricing_model']),
    fields: details['fields'] as string[],
    sizeBytes: typeof size === 'number' ? String(size) : undefined,
    appSharePpm: typeof share === 'number' ? share : undefined,
  });
}
