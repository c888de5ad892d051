import { z } from 'zod';
import type { Payout } from '@granary/shared/gen/granary/finance/v1/Payout';
import type { PayoutSettings } from '@granary/shared/gen/granary/finance/v1/PayoutSettings';
import type { TriggerPayoutRequest } from '@granary/shared/gen/granary/finance/v1/TriggerPayoutRequest';
import type { UpdatePayoutSettingsRequest } from '@granary/shared/gen/granary/finance/v1/UpdatePayoutSettingsRequest';
import { message } from '@granary/shared/rpc/types';
import { json, type Answer } from '../http/answer';
import type { GatewayContext } from '../pipeline/gateway-context';
import { idempotencyHeader, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';
import { bodyLimits, route, type RouteRequest } from '../pipeline/route';
import { pageQuery } from '../validation/parameters';
import { exampleTime, successSchema, timeSchema, utiaSchema } from '../validation/schemas';
import { balances, currency, currencySchema, exampleBalances, utia } from './amounts';

const settingTexts = {
  auto_payout_enabled: 'Whether payouts start by themselves',
  locked_balance: 'The part of the balance that is never paid out, in utia; set once, afterwards only increased',
  min_payout: 'The smallest payout, in utia',
  payout_threshold: 'The available balance at which a payout starts by itself, in utia',
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
  error: z.string().nullable().describe('Why it failed, or what it waits for'),
  created_at: timeSchema.describe('When it was started'),
  updated_at: timeSchema.describe('When it last changed'),
});

const examplePayout = {
  payout_id: '0197b0a4-6c2e-4d7e-9f6e-4f1f0a7f1c55',
  amount: 1_000_000,
  destination: 'celestia1…',
  trigger: 'manual',
  status: 'pending',
  tx_hash: null,
  error: null,
  created_at: exampleTime,
  updated_at: exampleTime,
};

const examplePage = { total: 0, limit: 100, offset: 0 };

const read = { kind: 'app', permission: 'Read' } as const;
const admin = { kind: 'app', permission: 'Admin' } as const;
const tag = 'Wallet';

const payoutJson = (payout: Payout) => ({
  payout_id: payout.payoutId,
  amount: utia(payout.amount),
  destination: payout.destination,
  trigger: payout.trigger,
  status: payout.status,
  tx_hash: payout.txHash ?? null,
  error: payout.error ?? null,
  created_at: payout.createdAt,
  updated_at: payout.updatedAt,
});

const infoResponses = {
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
};

async function payoutInfo({ clients }: GatewayContext, { path, call }: RouteRequest<'app_id'>): Promise<Answer> {
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
}

const statusSchema = z.enum(payoutStatuses);
const statusText = 'Only those in this state';

const historyResponses = {
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
};

/** The part of a history that a request names; null and absent are the defaults. */
interface HistoryPage {
  limit?: number | null | undefined;
  offset?: number | null | undefined;
  status?: z.output<typeof statusSchema> | null | undefined;
}

async function payoutHistory(
  { clients }: GatewayContext,
  { path, call }: RouteRequest<'app_id'>,
  { limit, offset, status }: HistoryPage,
): Promise<Answer> {
  const page = { limit: limit ?? 100, offset: offset ?? 0 };
  const request = { appId: path.app_id, limit: page.limit, offset: page.offset, status: status ?? '' };
  const { payouts, total } = await clients.finance.listPayouts(request, call);
  return json(200, { app_id: path.app_id, payouts: payouts.map(payoutJson), total: Number(total), ...page });
}

export const payoutRoutes = [
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
    summary: 'Read the payout settings and balances by POST',
    description: 'POST by the interface; it only reads, as the GET does.',
    tag,
    auth: read,
    body: { kind: 'json', optional: true, schema: z.strictObject({}), limitBytes: bodyLimits.smallBytes },
    responses: infoResponses,
    handle: payoutInfo,
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/payout/info',
    id: 'readPayoutInfo',
    summary: 'Read the payout settings and balances',
    description: 'As the POST answers them.',
    tag,
    auth: read,
    query: z.strictObject({}),
    responses: infoResponses,
    handle: payoutInfo,
  }),
  route({
    method: 'POST',
    path: '/apps/{app_id}/payout/trigger',
    id: 'triggerPayout',
    summary: 'Start a payout',
    description:
      'Its amount is held at once and paid by a transaction on the chain; see the history. The platform pays the fees.',
    tag,
    auth: admin,
    headers: idempotencyHeader,
    body: {
      kind: 'json',
      optional: true,
      limitBytes: bodyLimits.smallBytes,
      schema: z.strictObject({
        amount: z
          .int()
          .min(1)
          .max(Number.MAX_SAFE_INTEGER)
          .optional()
          .describe('What is paid, in utia; left out: all that is available'),
        payout_address: z
          .string()
          .min(1)
          .max(128)
          .optional()
          .describe('The bech32 address of this payout only; left out: `payout_destination`'),
      }),
      example: { amount: 1_000_000 },
    },
    responses: {
      202: { description: 'The payout', schema: payoutSchema, example: examplePayout },
      409: {
        description: 'There is no destination, the chain has refused it, or the amount is too small or too large',
        codes: [
          'PAYOUT_DESTINATION_MISSING',
          'PAYOUT_DESTINATION_REFUSED',
          'PAYOUT_BELOW_MINIMUM',
          'INSUFFICIENT_FUNDS',
        ],
      },
    },
    handle: async ({ clients }, request) => {
      const { path, body, call } = request;
      const { payout, replayed } = await clients.finance.triggerPayout(
        message<TriggerPayoutRequest>({
          appId: path.app_id,
          amount: body.amount?.toString(),
          payoutAddress: body.payout_address ?? undefined,
          idempotency: idempotencyOfJson(request),
        }),
        call,
      );
      return json(202, payoutJson(payout!), replayedHeader(replayed === true));
    },
  }),
  route({
    method: 'POST',
    path: '/apps/{app_id}/payout/history',
    id: 'listPayouts',
    summary: 'List the payouts of an application by POST',
    description: 'Newest first. POST by the interface; it only reads, as the GET does.',
    tag,
    auth: read,
    body: {
      kind: 'json',
      optional: true,
      limitBytes: bodyLimits.smallBytes,
      schema: z.strictObject({
        limit: z.int().min(1).max(10_000).nullish().describe('Payouts of the page, at most; by default 100'),
        offset: z.int().min(0).max(1_000_000).nullish().describe('Payouts to skip before the page; by default 0'),
        status: statusSchema.nullish().describe(statusText),
      }),
    },
    responses: historyResponses,
    handle: (context, request) => payoutHistory(context, request, request.body),
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/payout/history',
    id: 'readPayoutHistory',
    summary: 'List the payouts of an application',
    description: 'Newest first.',
    tag,
    auth: read,
    query: pageQuery.extend({ status: statusSchema.optional().describe(statusText) }),
    responses: historyResponses,
    handle: (context, request) => payoutHistory(context, request, request.query),
  }),
];
