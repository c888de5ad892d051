import { invalid } from '@granary/shared/errors';
import type { CollectionCost as CollectionCostMessage } from '@granary/shared/gen/granary/finance/v1/CollectionCost';
import type { FinanceDefinition } from '@granary/shared/gen/granary/finance/v1/Finance';
import type { Payout as PayoutMessage } from '@granary/shared/gen/granary/finance/v1/Payout';
import type { PayoutSettings as PayoutSettingsMessage } from '@granary/shared/gen/granary/finance/v1/PayoutSettings';
import type { Transaction as TransactionMessage } from '@granary/shared/gen/granary/finance/v1/Transaction';
import type { UpdatePayoutSettingsResponse } from '@granary/shared/gen/granary/finance/v1/UpdatePayoutSettingsResponse';
import type { UpdatePayoutSettingsRequest } from '@granary/shared/gen/granary/finance/v1/UpdatePayoutSettingsRequest';
import type { Wallet as WalletMessage } from '@granary/shared/gen/granary/finance/v1/Wallet';
import { toIdempotencyKey } from '@granary/shared/idempotency/key';
import { once } from '@granary/shared/idempotency/once';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { message, type Handlers } from '@granary/shared/rpc/types';
import { parseUtia } from '@granary/shared/money';
import { listAuthzTransactions, type AuthzTransaction } from './ledger/authz-transactions';
import { checkPage } from './page';
import { checkChange, updatePayoutSettings, type PayoutSettingsChange } from './payouts/payout-settings';
import { listPayouts, parsePayoutStatus, type Payout } from './payouts/payouts';
import type { Prices } from './usage/prices';
import { listRetentionCosts, type CollectionCost } from './usage/retention-costs';
import { getWallet, type PayoutSettings, type Wallet, type Wallets } from './wallets/wallet';

/** The Finance service. The gateway has checked that the application exists. */
export function financeHandlers(options: {
  wallets: Wallets;
  prices: Prices;
  now: () => Date;
}): Handlers<FinanceDefinition> {
  const { wallets, prices, now } = options;
  return {
    getWallet: async ({ appId }) => toWallet(await getWallet(wallets, required(appId))),

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
      await checkChange(wallets, change);
      await getWallet(wallets, appId);
      return retriedTransaction(wallets.pool, (tx) =>
        once<UpdatePayoutSettingsResponse>(tx, toIdempotencyKey(request.idempotency), async () => ({
          settings: toSettings(await updatePayoutSettings(tx, appId, change)),
        })),
      );
    },

    listPayouts: async (request) => {
      const status = parsePayoutStatus(request.status);
      const { items, total } = await listPayouts(wallets.pool, required(request.appId), checkPage(request), status);
      return { payouts: items.map(toPayout), total: total.toString() };
    },

    getRetentionCost: async ({ appId }) => {
      const costs = await listRetentionCosts(wallets.pool, prices, required(appId), now());
      const total = costs.reduce((sum, { monthlyCost }) => sum + monthlyCost, 0n);
      return { collections: costs.map(toCollectionCost), totalMonthlyCost: total.toString() };
    },

    listTransactions: async ({ userAddress, appId, ...page }) => {
      if ((userAddress === '') === (appId === '')) throw invalid('Either a user or an application is needed');
      const of = appId === '' ? { userAddress } : { appId };
      const { items, total } = await listAuthzTransactions(wallets.pool, of, checkPage(page));
      return { transactions: items.map(toTransaction), total: total.toString() };
    },
  };
}

function required(appId: string): string {
  if (!/^[A-Za-z0-9_-]{1,63}$/.test(appId)) throw invalid('The name of an application is needed');
  return appId;
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

function toWallet(wallet: Wallet): WalletMessage {
  return {
    appId: wallet.appId,
    address: wallet.address,
    balance: wallet.balance.toString(),
    lockedBalance: wallet.settings.lockedBalance.toString(),
    pendingPayouts: wallet.pendingPayouts.toString(),
    availableBalance: wallet.available.toString(),
    totalEarned: wallet.totalEarned.toString(),
    totalSpent: wallet.totalSpent.toString(),
    totalPaidOut: wallet.totalPaidOut.toString(),
    updatedAt: wallet.updatedAt.toISOString(),
  };
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

function toCollectionCost(cost: CollectionCost): CollectionCostMessage {
  return message<CollectionCostMessage>({
    collection: cost.collection,
    retentionDays: cost.retentionDays ?? undefined,
    sizeBytes: cost.sizeBytes.toString(),
    documentCount: cost.documentCount.toString(),
    freeDays: cost.freeDays,
    pricePerGibDay: cost.pricePerGibDay.toString(),
    monthlyCost: cost.monthlyCost.toString(),
    accrued: cost.accrued.toString(),
    nextChargeAt: cost.nextChargeAt.toISOString(),
  });
}

function toTransaction(transaction: AuthzTransaction): TransactionMessage {
  return {
    transactionHash: transaction.transactionHash,
    userAddress: transaction.userAddress,
    appId: transaction.appId,
    operationType: transaction.operationType,
    collection: transaction.collection,
    amount: transaction.amountUtia.toString(),
    status: transaction.status,
    blockHeight: transaction.blockHeight.toString(),
    createdAt: transaction.createdAt.toISOString(),
  };
}
