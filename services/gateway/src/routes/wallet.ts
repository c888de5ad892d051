import { z } from 'zod';
import type { WalletEntry } from '@granary/shared/gen/granary/finance/v1/WalletEntry';
import { json } from '../http/answer';
import { listed, listingHeaders, newestFirstQuery, nextCursorSchema } from '../pipeline/listing';
import { route } from '../pipeline/route';
import { exampleTime, timeSchema, utiaSchema } from '../validation/schemas';
import { balances, currency, currencySchema, exampleBalances, utia } from './amounts';

const walletSchema = z.object({
  app_id: z.string().describe('The application'),
  address: z.string().describe('The bech32 address of its wallet'),
  ...balances,
  total_earned: utiaSchema.describe('Earned and paid in since the beginning, in utia'),
  total_spent: utiaSchema.describe('Spent since the beginning, in utia'),
  total_paid_out: utiaSchema.describe('Paid out since the beginning, in utia'),
  currency: currencySchema,
  updated_at: timeSchema.describe('When it last changed'),
});

const entrySchema = z
  .object({
    entry_id: z.string().describe('Id of the transfer in the ledger; the two applications of a `spend` see the same'),
    amount: z.int().describe('What came into the wallet, in utia; negative: what left it'),
    kind: z
      .enum(['deposit', 'payout', 'retention', 'spend', 'spend_share', 'income'])
      .describe(
        '`deposit`, `payout`: from and to the chain; `retention`: what keeping documents costs; `spend`: paid by the ' +
          'agent key of one application to another, and `spend_share`: to the platform; `income`: paid by x402 or a grant',
      ),
    reference: z
      .string()
      .describe(
        'What it is for. Of a `deposit` the hash of its transaction, of a `payout` its `payout_id`, of `retention` ' +
          '`<collection>/<generation>/<period>`, of what was paid the id of the payment, or `write <ticket>`',
      ),
    created_at: timeSchema.describe('When it moved'),
  })
  .meta({ id: 'WalletEntry' });
const exampleEntry = {
  entry_id: '0198c1c2-6a3e-8d2b-9f9e-1c7f0e6a5b11',
  amount: -400_000,
  kind: 'payout',
  reference: '0198c1c2-6a3e-7d2b-9f9e-1c7f0e6a5b12',
  created_at: exampleTime,
};

const entryJson = ({ id, amount, isCredit, kind, ref, createdAt }: WalletEntry) => ({
  entry_id: id,
  amount: isCredit ? utia(amount) : -utia(amount),
  kind,
  reference: ref,
  created_at: createdAt,
});

const costSchema = z.object({
  collection: z.string().describe('The collection'),
  retention_days: z.int().nullable().describe('How long its documents are kept; null is for ever'),
  size_bytes: z.int().describe('Bytes of its documents and blobs'),
  document_count: z.int().describe('Its documents'),
  free_days: z.int().describe('Days that cost nothing'),
  price_per_gib_day: utiaSchema.describe('What a GiB costs a day, in utia'),
  monthly_cost: utiaSchema.describe('What 30 days cost at the present size, in utia'),
  accrued: utiaSchema.describe('What is owed: the cost until now without what was charged, in whole utia'),
  next_charge_at: timeSchema.nullable().describe('When the period ends that is charged next'),
});
const read = { kind: 'app', permission: 'Read' } as const;
const tag = 'Wallet';

export const walletRoutes = [
  route({
    method: 'GET',
    path: '/apps/{app_id}/wallet',
    id: 'getWallet',
    summary: 'Read the wallet of an application',
    description: 'From the ledger. What is sent to its address is credited.',
    tag,
    auth: read,
    responses: {
      200: {
        description: 'The wallet',
        schema: walletSchema,
        example: {
          app_id: 'demo',
          address: 'celestia1…',
          ...exampleBalances,
          total_earned: 0,
          total_spent: 0,
          total_paid_out: 0,
          currency,
          updated_at: exampleTime,
        },
      },
    },
    handle: async ({ clients }, { path, call }) => {
      const wallet = await clients.finance.getWallet({ appId: path.app_id }, call);
      return json(200, {
        app_id: path.app_id,
        address: wallet.address,
        balance: utia(wallet.balance),
        locked_balance: utia(wallet.lockedBalance),
        pending_payouts: utia(wallet.pendingPayouts),
        available_balance: utia(wallet.availableBalance),
        total_earned: utia(wallet.totalEarned),
        total_spent: utia(wallet.totalSpent),
        total_paid_out: utia(wallet.totalPaidOut),
        currency,
        updated_at: wallet.updatedAt,
      });
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/wallet/entries',
    id: 'listWalletEntries',
    summary: 'List what came into the wallet of an application and what left it',
    description:
      'The lines of its ledger, newest first. Their sum is `total_earned` − `total_spent` − `total_paid_out` of the ' +
      'wallet. What is only held, such as a payout that is on its way, is not among them. A page may have fewer entries ' +
      'than `limit`, or none, where much was held and released: there is more as long as there is a `next_cursor`.',
    tag,
    auth: read,
    query: newestFirstQuery,
    responses: {
      200: {
        description: 'A page of entries',
        schema: z.object({
          app_id: z.string().describe('The application'),
          currency: currencySchema,
          entries: z.array(entrySchema).describe('Newest first'),
          next_cursor: nextCursorSchema,
        }),
        example: { app_id: 'demo', currency, entries: [exampleEntry] },
        headers: listingHeaders,
      },
      400: { description: 'A parameter is not valid', codes: ['VALIDATION_FAILED', 'INVALID_CURSOR'] },
    },
    handle: async ({ clients }, request) => {
      const { path, query, call } = request;
      const { limit, cursor = '' } = query;
      const page = await clients.finance.listWalletEntries({ appId: path.app_id, limit, cursor }, call);
      const { entries, nextCursor } = page;
      const body = {
        app_id: path.app_id,
        currency,
        entries: entries.map(entryJson),
        next_cursor: nextCursor || undefined,
      };
      return listed(request, body, nextCursor);
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/retention/cost',
    id: 'getRetentionCost',
    summary: 'Read what keeping the documents costs',
    description:
      'It follows what collections and blobs hold, a moment later. A deleted collection is listed while it owes something.',
    tag,
    auth: read,
    responses: {
      200: {
        description: 'The cost by collection',
        schema: z.object({
          app_id: z.string().describe('The application'),
          currency: currencySchema,
          collections: z.array(costSchema).describe('By collection'),
          total_monthly_cost: utiaSchema.describe('The sum of `monthly_cost`, in utia'),
        }),
        example: { app_id: 'demo', currency, collections: [], total_monthly_cost: 0 },
      },
    },
    handle: async ({ clients }, { path, call }) => {
      const cost = await clients.finance.getRetentionCost({ appId: path.app_id }, call);
      return json(200, {
        app_id: path.app_id,
        currency,
        collections: cost.collections.map((one) => ({
          collection: one.collection,
          retention_days: one.retentionDays ?? null,
          size_bytes: Number(one.sizeBytes),
          document_count: Number(one.documentCount),
          free_days: one.freeDays,
          price_per_gib_day: utia(one.pricePerGibDay),
          monthly_cost: utia(one.monthlyCost),
          accrued: utia(one.accrued),
          next_charge_at: one.nextChargeAt || null,
        })),
        total_monthly_cost: utia(cost.totalMonthlyCost),
      });
    },
  }),
];
