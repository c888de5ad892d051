import { z } from 'zod';
import { json, jsonText } from '../answer';
import { limits, route } from '../route';
import { objectSchema } from '../schemas';

export const paymentRoutes = [
  route({
    method: 'POST',
    path: '/x402/verify',
    prefixes: ['', '/api'],
    id: 'verifyPayment',
    summary: 'Say whether a payment meets its requirements',
    description: 'Nothing is paid.',
    undocumented: 'planned',
    tag: 'x402',
    auth: { kind: 'public' },
    body: {
      kind: 'raw',
      content: {
        'application/json': {
          schema: z.object({
            x402Version: z.int().describe('1'),
            paymentPayload: objectSchema.optional().describe('The payment'),
            paymentHeader: z.string().optional().describe('The payment as `X-PAYMENT` carries it'),
            paymentRequirements: objectSchema.describe('What was asked for'),
          }),
        },
      },
      limitBytes: limits.smallBytes,
    },
    responses: {
      200: {
        description: 'The finding',
        schema: z.object({
          isValid: z.boolean(),
          invalidReason: z.string().optional(),
          invalidMessage: z.string().optional(),
          payer: z.string().optional(),
        }),
      },
      501: { description: 'Not implemented yet', codes: ['NOT_IMPLEMENTED'] },
    },
    handle: async ({ clients }, { body, call }) =>
      json(200, jsonText((await clients.payments.verifyPayment({ body }, call)).resultJson)),
  }),
];
