import { z } from 'zod';
import { newCall } from '@granary/shared/rpc/types';
import { json, jsonText } from '../http/answer';
import { bodyLimits, route } from '../pipeline/route';
import { objectSchema } from '../validation/schemas';
import { waitForBlock } from '../paying/x402-answers';

const versionSchema = z.literal([1, 2]).describe('Version of the x402 protocol');

const verificationSchema = z.object({
  x402Version: z
    .unknown()
    .optional()
    .describe('Version of the x402 protocol, 1 or 2: a payment of any other is answered as not valid'),
  paymentPayload: objectSchema.describe('The payment, as it is decoded from `X-PAYMENT` or `PAYMENT-SIGNATURE`'),
  paymentRequirements: objectSchema.describe('What it must meet: one of the `accepts` of a 402'),
});

const exampleRequirements = {
  scheme: 'exact',
  network: 'eip155:84532',
  amount: '10000',
  asset: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
  payTo: '0x209693bc6afc0c5328ba36faf03c514ef312287c',
  maxTimeoutSeconds: 300,
  extra: { name: 'USDC', version: '2' },
};

const exampleVerification = {
  x402Version: 2 as const,
  paymentPayload: {
    x402Version: 2,
    accepted: exampleRequirements,
    payload: {
      signature: `0x${'11'.repeat(64)}1b`,
      authorization: {
        from: '0x857b06519e91e3a54538791bdbb0e22373e36b66',
        to: '0x209693bc6afc0c5328ba36faf03c514ef312287c',
        value: '10000',
        validAfter: '0',
        validBefore: '1740672154',
        nonce: `0x${'f3'.repeat(32)}`,
      },
    },
  },
  paymentRequirements: exampleRequirements,
};

const findingSchema = z.object({
  isValid: z.boolean().describe('Whether the payment meets the requirements; not whether it was used before'),
  invalidReason: z.string().optional().describe('A reason of the x402 specification, if it does not'),
  invalidMessage: z.string().optional().describe('The same for people'),
  payer: z.string().optional().describe('Who pays, where that can be read'),
});

const settlementSchema = z.object({
  success: z.boolean().describe('Whether the money was moved'),
  errorReason: z
    .string()
    .optional()
    .describe('Why not: a reason of x402; `settlement_pending`: not yet, send the same again'),
  errorMessage: z.string().optional().describe('The same for people'),
  transaction: z.string().describe('Hash of the transaction; empty where there is none'),
  network: z.string().describe('The network'),
  payer: z.string().optional().describe('Who pays, where that can be read'),
  amount: z.string().optional().describe('What was paid, in units of the asset'),
});

const kindsSchema = z.object({
  kinds: z
    .array(
      z.object({
        x402Version: versionSchema,
        scheme: z.literal('exact').describe('Always `exact`'),
        network: z.string().describe('The network, as the version names it'),
        extra: z
          .object({ feePayer: z.string().describe('The address that pays the fee, which requirements must name') })
          .optional()
          .describe('On Solana: what requirements must say in `extra`'),
      }),
    )
    .describe('What is verified, by version, scheme and network'),
  extensions: z.array(z.string()).describe('None'),
  signers: objectSchema.describe('The addresses that sign settlements: on Solana those that pay the fees (`solana:*`)'),
});

export const paymentRoutes = [
  route({
    method: 'POST',
    path: '/x402/verify',
    prefixes: ['', '/api'],
    id: 'verifyPayment',
    summary: 'Say whether a payment meets its requirements',
    description:
      'By what the payment contains, and, where payments on its network are settled here, by whether it was used and its ' +
      'payer has the money. Nothing is paid, stored or reserved, and the answer is relative to the requirements of the ' +
      'request. A payment that does not meet them, or could not be settled now, is answered with 200 and `isValid: false`.',
    tag: 'x402',
    auth: { kind: 'public' },
    body: {
      kind: 'raw',
      content: { 'application/json': { schema: verificationSchema, example: exampleVerification } },
      limitBytes: bodyLimits.smallBytes,
    },
    responses: {
      200: {
        description: 'The finding',
        schema: findingSchema,
        example: {
          isValid: false,
          invalidReason: 'invalid_exact_evm_payload_authorization_valid_before',
          invalidMessage: 'validBefore must lie at least 6 seconds ahead, and at most maxTimeoutSeconds and 60 seconds',
          payer: '0x857b06519e91e3a54538791bdbb0e22373e36b66',
        },
      },
      400: { description: 'The body is not JSON, has a key twice, or lacks the payment or the requirements' },
    },
    handle: async ({ clients }, { body, call }) =>
      json(200, jsonText((await clients.payments.verifyPayment({ body }, call)).resultJson)),
  }),
  route({
    method: 'POST',
    path: '/x402/settle',
    prefixes: ['', '/api'],
    id: 'settlePayment',
    summary: 'Settle a payment',
    description:
      'Moves the money of a payment, once, for requirements that this service has made: those of a 402. The request that ' +
      'they were made for is then answered with the same payment. With `X402_SETTLE=open` those of others are settled too, ' +
      'for callers with a key. What is not settled is answered with 200 and `success: false`.',
    tag: 'x402',
    auth: { kind: 'reader' },
    body: {
      kind: 'raw',
      content: { 'application/json': { schema: verificationSchema, example: exampleVerification } },
      limitBytes: bodyLimits.smallBytes,
    },
    responses: {
      200: {
        description: 'Whether it was settled',
        schema: settlementSchema,
        example: {
          success: false,
          errorReason: 'invalid_payment_requirements',
          errorMessage: 'Only requirements that this service has made are settled here',
          transaction: '',
          network: 'eip155:84532',
        },
      },
      400: { description: 'The body is not JSON, has a key twice, or lacks the payment or the requirements' },
    },
    handle: async (gateway, { body, call, caller, leavePlace }) => {
      const request = { body, maySettleOthers: caller.kind !== 'anonymous' };
      // Money moves to a definite end, also when the client has gone.
      const settling = newCall(call.requestId, gateway.config.PAYMENT_TIMEOUT_MS);
      const settle = () => gateway.clients.payments.settleRequirements(request, settling);
      return json(200, jsonText((await waitForBlock(gateway, { leavePlace }, settle)).resultJson));
    },
  }),
  route({
    method: 'GET',
    path: '/x402/supported',
    prefixes: ['', '/api'],
    id: 'listPaymentKinds',
    summary: 'List the kinds of payments that are settled',
    description:
      'In the form of the facilitators of x402. `signers` has the account that pays the gas of settlements, where EVM networks are configured.',
    tag: 'x402',
    auth: { kind: 'public' },
    responses: {
      200: {
        description: 'The kinds',
        schema: kindsSchema,
        example: {
          kinds: [
            { x402Version: 2, scheme: 'exact', network: 'eip155:84532' },
            { x402Version: 1, scheme: 'exact', network: 'base-sepolia' },
          ],
          extensions: [],
          signers: { 'eip155:*': ['0x9858effd232b4033e47d90003d41ec34ecaeda94'] },
        },
      },
    },
    handle: async ({ clients }, { call }) =>
      json(200, jsonText((await clients.payments.listPaymentKinds({}, call)).kindsJson)),
  }),
];
