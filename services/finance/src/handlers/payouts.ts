import { conflict, invalid } from '@granary/shared/errors';
import type { FinanceDefinition } from '@granary/shared/gen/granary/finance/v1/Finance';
import type { FundWalletResponse } from '@granary/shared/gen/granary/finance/v1/FundWalletResponse';
import type { Payout as PayoutMessage } from '@granary/shared/gen/granary/finance/v1/Payout';
import type { PayoutSettings as PayoutSettingsMessage } from '@granary/shared/gen/granary/finance/v1/PayoutSettings';
import type { TriggerPayoutResponse } from '@granary/shared/gen/granary/finance/v1/TriggerPayoutResponse';
import type { UpdatePayoutSettingsRequest } from '@granary/shared/gen/granary/finance/v1/UpdatePayoutSettingsRequest';
import type { UpdatePayoutSettingsResponse } from '@granary/shared/gen/granary/finance/v1/UpdatePayoutSettingsResponse';
import { toIdempotencyKey } from '@granary/shared/idempotency/key';
import { once } from '@granary/shared/idempotency/once';
import { maxUtia, parseUtia } from '@granary/shared/money/amounts';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { message, type Handlers } from '@granary/shared/rpc/types';
import { checkPage } from '../page';
import { checkDestination, updatePayoutSettings, type PayoutSettingsChange } from '../payouts/payout-settings';
import { listPayouts, parsePayoutStatus, type Payout } from '../payouts/payouts';
import { assertRoomForPayouts, reservePayouts, type PayoutRules } from '../payouts/reserve-payouts';
import type { Faucet } from '../simulated-chain/faucet';
import { getWallet, type PayoutSettings, type Wallets } from '../wallets/wallet';

export const FAUCET_MISSING = 'FAUCET_MISSING';

export interface PayoutHandlerOptions {
  wallets: Wallets;
  payoutRules: PayoutRules;
  /** Undefined: the chain is a real one. */
  faucet: Faucet | undefined;
}

type PayoutMethods = 'getPayoutInfo' | 'updatePayoutSettings' | 'triggerPayout' | 'fundWallet' | 'listPayouts';

/** The part of the Finance service that pays out. */
export function payoutHandlers({
  wallets,
  payoutRules,
  faucet,
}: PayoutHandlerOptions): Pick<Handlers<FinanceDefinition>, PayoutMethods> {
  return {
    getPayoutInfo: async ({ appId }) => {
      const wallet = await getWallet(wallets, required(appId));
      return {
        settings: toSettings(wallet.settings),
        balance: wallet.balance.toString(),
        lockedBalance: wallet.settings.lockedBalance.toString(),
        pendingPayouts: wallet.pendingPayouts.toString(),
        availableBalance: wallet.available.toString(),
      };
    },

    updatePayoutSettings: async (request) => {
      const appId = required(request.appId);
      const change = toChange(request);
      await checkDestination(wallets, change.payoutDestination, 'payout_destination');
      await getWallet(wallets, appId);
      return retriedTransaction(wallets.pool, (tx) =>
        once<UpdatePayoutSettingsResponse>(tx, toIdempotencyKey(request.idempotency), async () => ({
          settings: toSettings(await updatePayoutSettings(tx, appId, change)),
        })),
      );
    },

    triggerPayout: async (request) => {
      const appId = required(request.appId);
      const amount = toAmount(request.amount);
      const destination = request.payoutAddress;
      await checkDestination(wallets, destination, 'payout_address');
      await getWallet(wallets, appId);
      return retriedTransaction(wallets.pool, (tx) =>
        once<TriggerPayoutResponse>(tx, toIdempotencyKey(request.idempotency), async () => {
          await assertRoomForPayouts(tx);
          const [payout] = await reservePayouts(tx, [{ appId, trigger: 'manual', amount, destination }], payoutRules);
          if (payout instanceof Error) throw payout;
          return { payout: toPayout(payout!) };
        }),
      );
    },

    fundWallet: async (request) => {
      const appId = required(request.appId);
      const amount = toAmount(request.amount)!;
      if (!faucet)
        throw conflict(
          FAUCET_MISSING,
          'Only the simulated chain has a faucet: send money to the address of the wallet',
        );
      faucet.check(amount);
      const { address } = await getWallet(wallets, appId);
      return retriedTransaction(wallets.pool, (tx) =>
        once<FundWalletResponse>(tx, toIdempotencyKey(request.idempotency), async () => ({
          address,
          txHash: await faucet.send(tx, address, amount),
        })),
      );
    },

    listPayouts: async (request) => {
      const status = parsePayoutStatus(request.status);
      const { items, total } = await listPayouts(wallets.pool, required(request.appId), checkPage(request), status);
      return { payouts: items.map(toPayout), total: total.toString() };
    },
  };
}

/** Throws INVALID_ARGUMENT for what is no name of an application. */
export function required(appId: string): string {
  if (!/^[A-Za-z0-9_-]{1,63}$/.test(appId)) throw invalid('The name of an application is needed');
  return appId;
}

/** An amount that is at least 1. Throws INVALID_ARGUMENT. */
function toAmount(text: string | undefined): bigint | undefined {
  if (text === undefined) return undefined;
  if (/^[1-9]\d{0,15}$/.test(text) && BigInt(text) <= maxUtia) return BigInt(text);
  throw invalid('The amount is not valid', { amount: ['must be a whole number of utia from 1 to 2^53-1'] });
}

/** Throws INVALID_ARGUMENT that names every amount that is none. */
function toChange(request: UpdatePayoutSettingsRequest): PayoutSettingsChange {
  const problems: Record<string, string[]> = {};
  const amount = (field: string, text: string | undefined): bigint | undefined => {
    if (text === undefined) return undefined;
    try {
      return parseUtia(text);
    } catch {
      problems[field] = ['must be a whole number of utia from 0 to 2^53-1'];
      return undefined;
    }
  };
  const change = message<PayoutSettingsChange>({
    autoPayoutEnabled: request.autoPayoutEnabled,
    lockedBalance: amount('locked_balance', request.lockedBalance),
    minPayout: amount('min_payout', request.minPayout),
    payoutThreshold: amount('payout_threshold', request.payoutThreshold),
    payoutDestination: request.payoutDestination,
  });
  if (Object.keys(problems).length > 0) throw invalid('The payout settings are not valid', problems);
  return change;
}

function toSettings(settings: PayoutSettings): PayoutSettingsMessage {
  return message<PayoutSettingsMessage>({
    autoPayoutEnabled: settings.autoPayoutEnabled,
    lockedBalance: settings.lockedBalance.toString(),
    minPayout: settings.minPayout.toString(),
    payoutThreshold: settings.payoutThreshold.toString(),
    payoutDestination: settings.payoutDestination ?? undefined,
  });
}

function toPayout(payout: Payout): PayoutMessage {
  return message<PayoutMessage>({
    payoutId: payout.id,
    amount: payout.amountUtia.toString(),
    destination: payout.destination,
    trigger: payout.trigger,
    status: payout.status,
    txHash: payout.txHash ?? undefined,
    error: payout.error ?? undefined,
    createdAt: payout.createdAt.toISOString(),
    updatedAt: payout.updatedAt.toISOString(),
  });
}
