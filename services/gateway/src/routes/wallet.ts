import { z } from 'zod';
import type { PayoutSettings } from '@granary/shared/gen/granary/finance/v1/PayoutSettings';
import type { UpdatePayoutSettingsRequest } from '@granary/shared/gen/granary/finance/v1/UpdatePayoutSettingsRequest';
import { message } from '@granary/shared/grpc/types';
import { parseUtia, utiaToNumber } from '@granary/shared/money';
import { json } from '../answer';
import { limits, route } from '../route';
import { successSchema, timeSchema, utiaSchema } from '../schemas';

const currency = 'utia';

/** The JSON integer of an amount on the wire, which is text there. */
const utia = (text: string) => utiaToNumber(parseUtia(text));

const balances = {
  balance: utiaSchema,
  locked_balance: utiaSchema,
  pending_payouts: utiaSchema,
  available_balance: utiaSchema,
};

const walletSchema = z.object({
  app_id: z.string(),
  address: z.string(),
  ...balances,
  total_earned: utiaSchema,
  total_spent: utiaSchema,
  total_paid_out: utiaSchema,
  currency: z.literal(currency),
  updated_at: timeSchema,
});

const settingsSchema = z
  .object({
    auto_payout_enabled: z.boolean(),
    locked_balance: utiaSchema,
    min_payout: utiaSchema,
    payout_threshold: utiaSchema,
    payout_destination: z.string().nullable(),
  })
  .meta({ id: 'PayoutSettings' });

function settingsJson(settings: PayoutSettings) {
  return {
    auto_payout_enabled: settings.autoPayoutEnabled,
    locked_balance: utia(settings.lockedBalance),
    min_payout: utia(settings.minPayout),
    payout_threshold: utia(settings.payoutThreshold),
    payout_destination: settings.payoutDestination ?? null,
  };
}

const payoutStatuses = ['pending', 'broadcast', 'confirmed', 'failed'] as const;

const payoutSchema = z.object({
  payout_id: z.string(),
  amount: utiaSchema,
  destination: z.string(),
  trigger: z.enum(['auto', 'manual']),
  status: z.enum(payoutStatuses),
  tx_hash: z.string().nullable(),
  error: z.string().nullable(),
  created_at: timeSchema,
  updated_at: timeSchema,
});

const costSchema = z.object({
  collection: z.string(),
  retention_days: z.int().nullable(),
  size_bytes: z.int(),
  document_count: z.int(),
  free_days: z.int(),
  price_per_gib_day: utiaSchema,
  monthly_cost: utiaSchema,
  accrued: utiaSchema,
  next_charge_at: timeSchema.nullable(),
});

const read = { kind: 'app', permission: 'Read' } as const;
const admin = { kind: 'app', permission: 'Admin' } as const;
const tag = 'Wallet';

export const walletRoutes = [
  route({
    method: 'GET',
    path: '/apps/{app_id}/wallet',
    id: 'getWallet',
    summary: 'Read the wallet of an application',
    tag,
    auth: read,
    responses: { 200: { description: 'The wallet', schema: walletSchema } },
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
    method: 'POST',
    path: '/apps/{app_id}/payout/settings',
    id: 'updatePayoutSettings',
    summary: 'Change the payout settings; what is absent or null stays as it is',
    tag,
    auth: admin,
    body: {
      kind: 'json',
      limitBytes: limits.smallBytes,
      schema: z.strictObject({
        auto_payout_enabled: z.boolean().nullish(),
        locked_balance: utiaSchema.nullish().describe('Set once, afterwards only increased'),
        min_payout: utiaSchema.nullish(),
        payout_threshold: utiaSchema.nullish(),
        payout_destination: z.string().min(1).max(128).nullish().describe('A bech32 address of the chain'),
      }),
    },
    responses: {
      200: { description: 'The settings', schema: successSchema.extend({ settings: settingsSchema }) },
      409: { description: 'LOCKED_BALANCE_DECREASE; nothing is changed' },
    },
    handle: async ({ clients }, { path, body, call }) => {
      const settings = await clients.finance.updatePayoutSettings(
        message<UpdatePayoutSettingsRequest>({
          appId: path.app_id,
          autoPayoutEnabled: body.auto_payout_enabled ?? undefined,
          lockedBalance: body.locked_balance?.toString(),
          minPayout: body.min_payout?.toString(),
          payoutThreshold: body.payout_threshold?.toString(),
          payoutDestination: body.payout_destination ?? undefined,
        }),
        call,
      );
      return json(200, { success: true, message: 'The payout settings are saved', settings: settingsJson(settings) });
    },
  }),
  route({
    method: 'POST',
    path: '/apps/{app_id}/payout/info',
    id: 'getPayoutInfo',
    summary: 'Read the payout settings and balances',
    tag,
    auth: read,
    body: { kind: 'json', optional: true, schema: z.strictObject({}), limitBytes: limits.smallBytes },
    responses: {
      200: {
        description: 'Settings and balances',
        schema: z.object({
          app_id: z.string(),
          settings: settingsSchema,
          ...balances,
          currency: z.literal(currency),
        }),
      },
    },
    handle: async ({ clients }, { path, call }) => {
      const info = await clients.finance.getPayoutInfo({ appId: path.app_id }, call);
      return json(200, {
        app_id: path.app_id,
        settings: settingsJson(info.settings!),
        balance: utia(info.balance),
        locked_balance: utia(info.lockedBalance),
        pending_payouts: utia(info.pendingPayouts),
        available_balance: utia(info.availableBalance),
        currency,
      });
    },
  }),
  route({
    method: 'POST',
    path: '/apps/{app_id}/payout/history',
    id: 'listPayouts',
    summary: 'List the payouts of an application, newest first',
    tag,
    auth: read,
    body: {
      kind: 'json',
      optional: true,
      limitBytes: limits.smallBytes,
      schema: z.strictObject({
        limit: z.int().min(1).max(10_000).nullish(),
        offset: z.int().min(0).max(1_000_000).nullish(),
        status: z.enum(payoutStatuses).nullish(),
      }),
    },
    responses: {
      200: {
        description: 'A page of payouts',
        schema: z.object({
          app_id: z.string(),
          payouts: z.array(payoutSchema),
          total: z.int(),
          limit: z.int(),
          offset: z.int(),
        }),
      },
    },
    handle: async ({ clients }, { path, body, call }) => {
      const page = { limit: body.limit ?? 100, offset: body.offset ?? 0 };
      const request = { appId: path.app_id, ...page, status: body.status ?? '' };
      const { payouts, total } = await clients.finance.listPayouts(request, call);
      return json(200, {
        app_id: path.app_id,
        payouts: payouts.map((payout) => ({
          payout_id: payout.payoutId,
          amount: utia(payout.amount),
          destination: payout.destination,
          trigger: payout.trigger,
          status: payout.status,
          tx_hash: payout.txHash ?? null,
          error: payout.error ?? null,
          created_at: payout.createdAt,
          updated_at: payout.updatedAt,
        })),
        total: Number(total),
        ...page,
      });
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/retention/cost',
    id: 'getRetentionCost',
    summary: 'Read what keeping the documents costs',
    tag,
    auth: read,
    responses: {
      200: {
        description: 'The cost by collection',
        schema: z.object({
          app_id: z.string(),
          currency: z.literal(currency),
          collections: z.array(costSchema),
          total_monthly_cost: utiaSchema,
        }),
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
