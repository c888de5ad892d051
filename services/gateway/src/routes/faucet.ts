import { z } from 'zod';
import { json } from '../http/answer';
import { idempotencyHeader, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';
import { bodyLimits, route } from '../pipeline/route';
import { utiaSchema } from '../validation/schemas';

export const faucetRoutes = [
  route({
    method: 'POST',
    path: '/apps/{app_id}/faucet',
    id: 'fundWallet',
    summary: 'Send money of the simulated chain to a wallet',
    description: 'It is no real money. The wallet is credited a moment later, as by any deposit.',
    tag: 'Wallet',
    auth: { kind: 'operator' },
    headers: idempotencyHeader,
    body: {
      kind: 'json',
      limitBytes: bodyLimits.smallBytes,
      schema: z.strictObject({
        amount: z.int().min(1).max(Number.MAX_SAFE_INTEGER).describe('In utia, at most `FAUCET_UTIA_MAX`'),
      }),
      example: { amount: 1_000_000 },
    },
    responses: {
      202: {
        description: 'It was sent',
        schema: z.object({
          app_id: z.string().describe('The application'),
          address: z.string().describe('The bech32 address of its wallet'),
          amount: utiaSchema.describe('What was sent, in utia'),
          tx_hash: z.string().describe('Hash of the transaction on the simulated chain'),
        }),
        example: { app_id: 'demo', address: 'celestia1…', amount: 1_000_000, tx_hash: '5A1F…' },
      },
      403: { description: 'The faucet is closed', codes: ['FORBIDDEN'] },
      409: { description: 'The chain is a real one', codes: ['FAUCET_MISSING'] },
    },
    handle: async ({ clients }, request) => {
      const { path, body, call } = request;
      await clients.data.getApplication({ appId: path.app_id }, call);
      const rpcRequest = {
        appId: path.app_id,
        amount: body.amount.toString(),
        idempotency: idempotencyOfJson(request),
      };
      const { address, txHash, replayed } = await clients.finance.fundWallet(rpcRequest, call);
      const sent = { app_id: path.app_id, address, amount: body.amount, tx_hash: txHash };
      return json(202, sent, replayedHeader(replayed === true));
    },
  }),
];
