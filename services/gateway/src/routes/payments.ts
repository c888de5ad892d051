import { z } from 'zod';
import { json, jsonText } from '../http/answer';
import { route } from '../pipeline/route';

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
    // What is not implemented is refused before its body is read: anyone may send one.
    handle: async ({ clients }, { call }) =>
      json(200, jsonText((await clients.payments.verifyPayment({ body: Buffer.alloc(0) }, call)).resultJson)),
  }),
];
