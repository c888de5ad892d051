import { z } from 'zod';
import type { PayoutSettings } from '@granary/shared/gen/granary/finance/v1/PayoutSettings';
import type { UpdatePayoutSettingsRequest } from '@granary/shared/gen/granary/finance/v1/UpdatePayoutSettingsRequest';
import { message } from '@granary/shared/rpc/types';
import { parseUtia, utiaToNumber } from '@granary/shared/money';
import { json } from '../http/answer';
import { idempotencyHeader, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';
import { bodyLimits, route } from '../pipeline/route';
import { exampleTime, successSchema, timeSchema, utiaSchema } from '../validation/schemas';

const currency = 'utia';
const currencySchema = z.literal(currency).describe('The unit of all amounts: 1 TIA = 1,000,000 utia');

/** An amount, which is text on the wire, as a JSON integer. */
const utia = (text: string) => utiaToNumber(parseUtia(text));

const balances = {
  balance: utiaSchema.describe('All that the application has, in utia'),
  locked_balance: utiaSchema.describe('The part that is never paid out, in utia'),
  pending_payouts: utiaSchema.describe('The part that is on its way out, in utia'),
  available_balance: utiaSchema.describe('balance − locked_balance − pending_payouts, never negative, in utia'),
};
const exampleBalances = { balance: 0, locked_balance: 0, pending_payouts: 0, available_balance: 0 };

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

const settingTexts = {
  auto_payout_enabled: 'Whether payouts start by themselves',
  locked_balance: 'The part of the balance that is never paid out, in utia; set once, afterwards only increased',
  min_payout: 'The smallest payout, in utia',
  payout_threshold: 'The available balance from which on a payout starts by itself, in utia',
  payout_destination: 'The bech32 address that payouts go to, in lower case; not a wallet of this Granary',
};
const exampleSettings = {
  auto_payout_enabled: false,
  locked_balance: 0,
  min_payout: 1_000_000,
  payout_threshold: 0,
  payout_destination: null,
};

const settingsSchema = z
  .object({
    auto_payout_enabled: z.boolean().describe(settingTexts.auto_payout_enabled),
    locked_balance: utiaSchema.describe(settingTexts.locked_balance),
    min_payout: utiaSchema.describe(settingTexts.min_payout),
    payout_threshold: utiaSchema.describe(settingTexts.payout_threshold),
    payout_destination: z.string().nullable().describe(settingTexts.payout_destination),
  })
  .meta({ id: 'PayoutSettings', examples: [exampleSettings] });

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
  payout_id: z.string().describe('Id of the payout'),
  amount: utiaSchema.describe('What is paid, in utia'),
  destination: z.string().describe('The bech32 address that it goes to'),
  trigger: z.enum(['auto', 'manual']).describe('What started it'),
  status: z.enum(payoutStatuses).describe('How far it is'),
  tx_hash: z.string().nullable().describe('Hash of the transaction on the chain'),
  error: z.string().nullable().describe('Why it failed'),
  created_at: timeSchema.describe('When it was started'),
  updated_at: timeSchema.describe('When it last changed'),
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
const examplePage = { total: 0, limit: 100, offset: 0 };

const read = { kind: 'app', permission: 'Read' } as const;
const admin = { kind: 'app', permission: 'Admin' } as const;
const tag = 'Wallet';

export const walletRoutes = [
  route({
    method: 'GET',
    path: '/apps/{app_id}/wallet',
    id: 'getWallet',
    summary: 'Read the wallet of an application',
    description: 'From the ledger. Nothing is paid in or out yet; retention is charged.',
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
    method: 'POST',
    path: '/apps/{app_id}/payout/settings',
    id: 'updatePayoutSettings',
    summary: 'Change the payout settings',
    description: 'What is absent or null stays as it is.',
    tag,
    auth: admin,
    headers: idempotencyHeader,
    body: {
      kind: 'json',
      limitBytes: bodyLimits.smallBytes,
      schema: z.strictObject({
        auto_payout_enabled: z.boolean().nullish().describe(settingTexts.auto_payout_enabled),
        locked_balance: utiaSchema.nullish().describe(settingTexts.locked_balance),
        min_payout: utiaSchema.nullish().describe(settingTexts.min_payout),
        payout_threshold: utiaSchema.nullish().describe(settingTexts.payout_threshold),
        payout_destination: z.string().min(1).max(128).nullish().describe(settingTexts.payout_destination),
      }),
      example: { min_payout: 1_000_000 },
    },
    responses: {
      200: {
        description: 'The settings',
        schema: successSchema.extend({ settings: settingsSchema }),
        example: { success: true, message: 'The payout settings are saved', settings: exampleSettings },
      },
      409: { description: 'The locked balance would decrease', codes: ['LOCKED_BALANCE_DECREASE'] },
    },
    handle: async ({ clients }, request) => {
      const { path, body, call } = request;
      const { settings, replayed } = await clients.finance.updatePayoutSettings(
        message<UpdatePayoutSettingsRequest>({
          appId: path.app_id,
          autoPayoutEnabled: body.auto_payout_enabled ?? undefined,
          lockedBalance: body.locked_balance?.toString(),
          minPayout: body.min_payout?.toString(),
          payoutThreshold: body.payout_threshold?.toString(),
          payoutDestination: body.payout_destination ?? undefined,
          idempotency: idempotencyOfJson(request),
        }),
        call,
      );
      const answer = { success: true, message: 'The payout settings are saved', settings: settingsJson(settings!) };
      return json(200, answer, replayedHeader(replayed === true));
    },
  }),
  route({
    method: 'POST',
    path: '/apps/{app_id}/payout/info',
    id: 'getPayoutInfo',
    summary: 'Read the payout settings and balances',
    description: 'POST by the interface; it only reads.',
    tag,
    auth: read,
    body: { kind: 'json', optional: true, schema: z.strictObject({}), limitBytes: bodyLimits.smallBytes },
    responses: {
      200: {
        description: 'Settings and balances',
        schema: z.object({
          app_id: z.string().describe('The application'),
          settings: settingsSchema,
          ...balances,
          currency: currencySchema,
        }),
        example: { app_id: 'demo', settings: exampleSettings, ...exampleBalances, currency },
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
    summary: 'List the payouts of an application',
    description: 'Newest first. POST by the interface; it only reads.',
    tag,
    auth: read,
    body: {
      kind: 'json',
      optional: true,
      limitBytes: bodyLimits.smallBytes,
      schema: z.strictObject({
        limit: z.int().min(1).max(10_000).nullish().describe('Payouts of the page, at most; by default 100'),
        offset: z.int().min(0).max(1_000_000).nullish().describe('Payouts to skip before the page; by default 0'),
        status: z.enum(payoutStatuses).nullish().describe('Only those in this state'),
      }),
    },
    responses: {
      200: {
        description: 'A page of payouts',
        schema: z.object({
          app_id: z.string().describe('The application'),
          payouts: z.array(payoutSchema).describe('Newest first'),
          total: z.int().describe('How many there are on all pages'),
          limit: z.int().describe('The limit that was applied'),
          offset: z.int().describe('The offset that was applied'),
        }),
        example: { app_id: 'demo', payouts: [], ...examplePage },
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
