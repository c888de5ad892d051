import { z } from 'zod';
import type { OperationQuote } from '@granary/shared/gen/granary/payments/v1/OperationQuote';
import type { PremiumCost } from '@granary/shared/gen/granary/payments/v1/PremiumCost';
import { toText, type JsonValue } from '@granary/shared/json/value';
import { tiaText } from '@granary/shared/money/amounts';
import { json, JsonText } from '../http/answer';
import { mayReadPrivate } from '../pipeline/access';
import { bodyLimits, route } from '../pipeline/route';
import { appIdSchema, nameSchema, objectSchema, utiaSchema } from '../validation/schemas';

/** A tebibyte. */
const sizeKbMax = 2 ** 30;

const quoteRequestSchema = z.strictObject({
  app_id: appIdSchema.describe('Id of the application'),
  operation_type: z.enum(['read', 'write']).describe('What is to be done'),
  size_kb: z
    .number()
    .min(0)
    .max(sizeKbMax)
    .describe('The size of what is written or read, in KB of 1,024 bytes, rounded to millionths'),
  collection: nameSchema.describe('Name of the collection; it need not exist'),
  monthly_volume_kb: z
    .number()
    .min(0)
    .max(Number.MAX_SAFE_INTEGER)
    .optional()
    .describe('What is written or read in a month, in KB, for fees that depend on it; by default 0'),
  data: z
    .union([objectSchema, z.array(objectSchema)])
    .nullish()
    .describe('A document to be written, or several: their values of a field with a `price` index are amounts in utia'),
});

const exampleRequest = { app_id: 'demo', operation_type: 'write' as const, size_kb: 2.5, collection: 'notes' };

const tiaSchema = z.number().min(0).describe('The same in TIA, exactly');
const costsSchema = (unit: string) =>
  z.record(z.string(), z.number().min(0)).describe(`The cost of each indexed field of a write, in ${unit}`);

const premiumSchema = z
  .object({
    premium_total: tiaSchema,
    premium_total_utia: utiaSchema,
    premium_type: z
      .enum(['per_access', 'per_kb', 'field_value'])
      .describe('What the amount is for; `field_value`: the value of a field with a `price` index'),
    premium_amount: z.number().min(0).describe('The price of an access or of a KB, or the value, in TIA'),
    creator_revenue: tiaSchema,
    creator_revenue_utia: utiaSchema.describe('The part of the application, rounded down'),
    platform_revenue: tiaSchema,
    platform_revenue_utia: utiaSchema.describe('The rest'),
    revenue_split: z.string().describe('Both parts in percent, as `80/20`'),
  })
  .describe('What the application asks by the prices of its indexes: the highest of them');

const priceSchema = z
  .object({
    index: z.string().describe('Name of the index, or of the collection'),
    field_name: z.string().describe('Its field; `*` where the price is of the collection'),
    pricing_model: z.string().describe('As `premium_type`'),
    amount: z.number().min(0).describe('As `premium_amount`'),
    amount_utia: utiaSchema.describe('The same in utia'),
  })
  .describe('The price that the premium comes from');

const quoteSchema = z.object({
  type: z.enum(['write_quote_with_indexing', 'read_quote']).describe('Of which operation'),
  base_celestia_cost: tiaSchema,
  base_celestia_cost_utia: utiaSchema.describe('For the size alone'),
  broker_fee: tiaSchema,
  broker_fee_utia: utiaSchema.describe('The fee of the operator, a part of the base'),
  indexing_costs: costsSchema('TIA'),
  indexing_costs_utia: costsSchema('utia'),
  base_total_cost: tiaSchema,
  base_total_cost_utia: utiaSchema.describe('The sum of the above'),
  total_cost: tiaSchema,
  total_cost_utia: utiaSchema.describe('With the premium'),
  indexed_fields_count: z.int().describe('How many fields of the collection are indexed'),
  request: objectSchema.describe('The request'),
  monthly_volume_kb: z.number().describe('The volume that the fee is for'),
  currency: z.literal('TIA').describe('Always `TIA`'),
  creator_premium: premiumSchema.optional(),
  price: priceSchema.optional(),
});

const exampleQuote = {
  type: 'write_quote_with_indexing',
  base_celestia_cost: 0.0001,
  base_celestia_cost_utia: 100,
  broker_fee: 0.00002,
  broker_fee_utia: 20,
  indexing_costs: { stars: 0.000025 },
  indexing_costs_utia: { stars: 25 },
  base_total_cost: 0.000145,
  base_total_cost_utia: 145,
  total_cost: 0.000145,
  total_cost_utia: 145,
  indexed_fields_count: 1,
  request: exampleRequest,
  monthly_volume_kb: 0,
  currency: 'TIA',
};

export const pricingRoutes = [
  route({
    method: 'POST',
    path: '/pricing/quote',
    id: 'quotePrice',
    summary: 'Estimate what an operation costs',
    description:
      'By the prices that the operator has configured and the indexes of the collection. Nothing is charged or reserved. ' +
      'Of a private collection the answer is that of one that does not exist, without a key with `Read`.',
    tag: 'x402',
    auth: { kind: 'reader' },
    body: { kind: 'json', schema: quoteRequestSchema, example: exampleRequest, limitBytes: bodyLimits.smallBytes },
    responses: {
      200: { description: 'The estimate', schema: quoteSchema, example: exampleQuote },
      400: { description: 'Malformed or invalid, or beyond 2^53-1 utia', codes: ['LIMIT_EXCEEDED'] },
      404: { description: 'There is no such application', codes: ['APP_NOT_FOUND'] },
    },
    handle: async ({ clients, apps, addressOf }, { body, jsonTree, caller, incoming, call }) => {
      const { app_id: appId, collection, operation_type: operation, data, monthly_volume_kb: volumeKb } = body;
      const sizeMicroKb = microsOf(body.size_kb);
      if (!apps.has(appId)) await apps.find(appId, addressOf(incoming), call);
      const isWrite = operation === 'write';
      const { indexedFields, prices } = await clients.data.getOperationPrices(
        {
          appId,
          collection,
          mayReadPrivate: mayReadPrivate(caller, appId),
          isWrite,
          documents: data == null ? Buffer.alloc(0) : Buffer.from(toText(memberOf(jsonTree, 'data'))),
        },
        call,
      );
      const monthlyVolumeKb = String(Math.floor(volumeKb ?? 0));
      const quote = await clients.payments.quoteOperation(
        { isWrite, sizeMicroKb, monthlyVolumeKb, indexedFields, premiums: prices },
        call,
      );
      return json(200, {
        type: isWrite ? 'write_quote_with_indexing' : 'read_quote',
        ...costsJson(quote),
        indexed_fields_count: indexedFields.length,
        request: new JsonText(toText(jsonTree)),
        monthly_volume_kb: volumeKb ?? 0,
        currency: 'TIA',
        ...(quote.premium && premiumJson(quote.premium)),
      });
    },
  }),
];

const memberOf = (tree: JsonValue, name: string): JsonValue => (tree instanceof Map && tree.get(name)) || null;

/** A size in millionths, to the nearest of them: a thousandth of a byte. */
const microsOf = (sizeKb: number): string => BigInt(sizeKb.toFixed(6).replace('.', '')).toString();

/** An amount in both units, under a name and the same with `_utia`. */
const amountJson = (name: string, utia: string) => ({
  [name]: new JsonText(tiaText(BigInt(utia))),
  [`${name}_utia`]: new JsonText(utia),
});

const costsJson = (quote: OperationQuote) => ({
  ...amountJson('base_celestia_cost', quote.baseUtia),
  ...amountJson('broker_fee', quote.brokerFeeUtia),
  indexing_costs: fieldsJson(quote, (utia) => tiaText(BigInt(utia))),
  indexing_costs_utia: fieldsJson(quote, (utia) => utia),
  ...amountJson('base_total_cost', quote.baseTotalUtia),
  ...amountJson('total_cost', quote.totalUtia),
});

/**
 * The indexing costs by field, as JSON text. A field may have any name, and an object would reorder names that are
 * numbers.
 */
const fieldsJson = ({ indexingCosts }: OperationQuote, textOf: (utia: string) => string): JsonText =>
  new JsonText(
    `{${indexingCosts.map(({ field, costUtia }) => `${JSON.stringify(field)}:${textOf(costUtia)}`).join(',')}}`,
  );

function premiumJson({ premium, totalUtia, appUtia, platformUtia, appSharePpm }: PremiumCost) {
  const { index, field, type, amountUtia } = premium!;
  return {
    creator_premium: {
      ...amountJson('premium_total', totalUtia),
      premium_type: type,
      premium_amount: new JsonText(tiaText(BigInt(amountUtia))),
      ...amountJson('creator_revenue', appUtia),
      ...amountJson('platform_revenue', platformUtia),
      revenue_split: `${appSharePpm / 10_000}/${(1_000_000 - appSharePpm) / 10_000}`,
    },
    price: { index, field_name: field, pricing_model: type, ...amountJson('amount', amountUtia) },
  };
}
