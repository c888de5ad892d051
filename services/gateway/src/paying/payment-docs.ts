import { z } from 'zod';
import { idempotencyHeader } from '../pipeline/idempotency';
import type { HeaderDoc, ResponseDoc } from '../pipeline/route';
import { objectSchema } from '../validation/schemas';

/** The headers by which a request is paid for. */
export const paymentHeaders: Readonly<Record<string, HeaderDoc>> = {
  'X-Agent-Key': { description: 'A key with `Pay`, whose application pays what the request costs' },
  'X-User-Key': {
    description: 'The key of a grant, by which its user pays what the request costs, see docs/money/grants.md',
  },
  'X-PAYMENT': { description: 'A payment of x402 version 1, in base64' },
  'PAYMENT-SIGNATURE': { description: 'A payment of x402 version 2, in base64' },
};

/** The headers by which a read is paid for, and the one that makes a paid read safe to repeat. */
export const paidReadHeaders: Readonly<Record<string, HeaderDoc>> = {
  ...paymentHeaders,
  'Idempotency-Key': {
    ...idempotencyHeader['Idempotency-Key'],
    description:
      'Of a read that is paid for: makes it safe to repeat. The same read by the same payer waits for the first, and gets ' +
      'its answer for 24 hours, as far as that has up to 1 MiB. 1 to 255 visible ASCII characters',
  },
};

const paymentRequiredSchema = z
  .object({
    x402Version: z.literal(1).describe('Always 1'),
    error: z
      .string()
      .describe('Text for people; where an x402 payment was refused the reason, as clients of x402 expect it'),
    accepts: z.array(objectSchema).describe('The requirements of x402; empty where no network is configured'),
    code: z.enum(['PAYMENT_REQUIRED', 'PAYMENT_REFUSED']).describe('Whether there was a payment'),
    details: z
      .looseObject({
        amount_utia: z.int().describe('What it costs'),
        pricing_model: z
          .enum(['per_access', 'per_kb', 'field_value', 'per_index'])
          .describe('What the price counts; `field_value`, of a write: the values of a field with a `price` index'),
        fields: z
          .array(z.string())
          .describe('The priced fields that a read touches; `*`: the whole. Of a write that whose price counts'),
        size_bytes: z.int().optional().describe('With `per_kb`: the size of the answer. The size of a write'),
        reason: z.string().optional().describe('Why a payment was refused'),
        message: z.string().optional().describe('The same for people, where `error` is the reason'),
      })
      .describe('The price'),
  })
  .meta({
    id: 'PaymentRequired',
    examples: [
      {
        x402Version: 1,
        error: 'The read costs 250000 utia',
        accepts: [],
        code: 'PAYMENT_REQUIRED',
        details: { amount_utia: 250_000, pricing_model: 'per_access', fields: ['stars'] },
      },
    ],
  });

/** The responses of a route that may cost something, see docs/money/prices.md. */
export const paymentResponses: Readonly<Record<402 | 503, ResponseDoc>> = {
  402: {
    description: 'It costs something, and no payment came that pays for it: `PAYMENT_REQUIRED`, `PAYMENT_REFUSED`',
    schema: paymentRequiredSchema,
    headers: { 'PAYMENT-REQUIRED': 'The same by x402 version 2, in base64; where a network is configured' },
  },
  503: {
    description:
      'The service is down or busy, or no block has the payment yet (`PAYMENT_PENDING`): then the same request with the same ' +
      'payment is answered once one has it. `details` has `ticket_id`, `status`, and `idempotency_key` where the request has to ' +
      'be repeated with that `Idempotency-Key`',
    codes: ['UNAVAILABLE', 'OVERLOADED', 'PAYMENT_PENDING'],
  },
};
