import { z } from 'zod';
import type { IndexPrice } from '@granary/shared/gen/granary/data/v1/IndexPrice';

const utiaPerTia = 1_000_000;
/** The largest price: up to it every amount is exact as a number of TIA, too. */
const tiaMax = 1_000_000_000;

const toUtia = (tia: number): number => Math.round(tia * utiaPerTia);

const tiaSchema = z
  .number()
  .min(0)
  .max(tiaMax)
  .refine((tia) => toUtia(tia) / utiaPerTia === tia, 'must have at most 6 decimals')
  .optional();
const utiaPriceSchema = z
  .int()
  .min(0)
  .max(tiaMax * utiaPerTia)
  .optional();
const shareSchema = z.number().min(0).max(1).optional();

export const examplePrice = { pricing_model: 'per_access', price_per_access_tia: 0.25, price_per_access_utia: 250_000 };

/** A price as it is given. An amount in TIA and the same in utia are one. */
export const priceConfigSchema = z
  .strictObject({
    pricing_model: z.enum(['per_access', 'per_kb']).optional().describe('What is counted'),
    price_per_access_tia: tiaSchema.describe('In TIA, with at most 6 decimals'),
    price_per_access_utia: utiaPriceSchema.describe('The same in utia'),
    price_per_kb_tia: tiaSchema.describe('In TIA, with at most 6 decimals'),
    price_per_kb_utia: utiaPriceSchema.describe('The same in utia'),
    app_owner_percentage: shareSchema.describe('The part of a payment for the owner of the application, from 0 to 1'),
    platform_percentage: shareSchema.describe('The part for the platform'),
    app_owner_address: z.string().max(200).nullish().describe('Where the part of the owner goes'),
  })
  .superRefine((price, context) => {
    const problem = (path: string, message: string) =>
      context.addIssue({ code: 'custom', path: [path], message, input: price });
    for (const unit of ['access', 'kb'] as const) {
      const [tia, utia] = [price[`price_per_${unit}_tia`], price[`price_per_${unit}_utia`]];
      const isGiven = typeof tia === 'number' || typeof utia === 'number';
      if (typeof tia === 'number' && typeof utia === 'number' && toUtia(tia) !== utia) {
        problem(`price_per_${unit}_utia`, 'must be the same amount as in TIA');
      }
      if (price.pricing_model === `per_${unit}` && !isGiven) problem(`price_per_${unit}_tia`, 'is required');
      if (!price.pricing_model && isGiven) problem('pricing_model', 'is required with a price');
    }
    if ((price.app_owner_percentage ?? 0) + (price.platform_percentage ?? 0) > 1.000_001) {
      problem('platform_percentage', 'must not exceed 1 together with app_owner_percentage');
    }
  })
  .meta({ id: 'IndexPrice', examples: [{ pricing_model: 'per_access', price_per_access_tia: 0.25 }] });

type PriceConfig = z.output<typeof priceConfigSchema>;

/** A price for the data service: amounts in utia. */
export function priceMessage(price: PriceConfig): IndexPrice {
  const utia = (tia: number | null | undefined, given: number | null | undefined) =>
    given ?? (tia == null ? null : toUtia(tia));
  const perAccess = utia(price.price_per_access_tia, price.price_per_access_utia);
  const perKb = utia(price.price_per_kb_tia, price.price_per_kb_utia);
  return {
    ...(price.pricing_model && { pricingModel: price.pricing_model }),
    ...(perAccess !== null && { pricePerAccessUtia: String(perAccess) }),
    ...(perKb !== null && { pricePerKbUtia: String(perKb) }),
    ...(typeof price.app_owner_percentage === 'number' && { appOwnerPercentage: price.app_owner_percentage }),
    ...(typeof price.platform_percentage === 'number' && { platformPercentage: price.platform_percentage }),
    ...(typeof price.app_owner_address === 'string' && { appOwnerAddress: price.app_owner_address }),
  };
}

/** The price in a body, where it has one. */
export const readPriceOf = (body: { read_price_config?: PriceConfig | null | undefined }) =>
  body.read_price_config ? { readPriceConfig: priceMessage(body.read_price_config) } : {};

/** A price as it is shown: each amount in both units. */
export function priceJson(price: IndexPrice) {
  const amounts = (unit: 'access' | 'kb', text: string | undefined) =>
    text === undefined
      ? {}
      : { [`price_per_${unit}_tia`]: Number(text) / utiaPerTia, [`price_per_${unit}_utia`]: Number(text) };
  return {
    ...(price.pricingModel !== undefined && { pricing_model: price.pricingModel }),
    ...amounts('access', price.pricePerAccessUtia),
    ...amounts('kb', price.pricePerKbUtia),
    ...(price.appOwnerPercentage !== undefined && { app_owner_percentage: price.appOwnerPercentage }),
    ...(price.platformPercentage !== undefined && { platform_percentage: price.platformPercentage }),
    ...(price.appOwnerAddress !== undefined && { app_owner_address: price.appOwnerAddress }),
  };
}
