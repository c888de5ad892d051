import { invalid } from '@granary/shared/errors';
import type { CollectionCost as CollectionCostMessage } from '@granary/shared/gen/granary/finance/v1/CollectionCost';
import type { FinanceDefinition } from '@granary/shared/gen/granary/finance/v1/Finance';
import type { Transaction as TransactionMessage } from '@granary/shared/gen/granary/finance/v1/Transaction';
import type { WalletEntry as WalletEntryMessage } from '@granary/shared/gen/granary/finance/v1/WalletEntry';
import type { Wallet as WalletMessage } from '@granary/shared/gen/granary/finance/v1/Wallet';
import { checkListingLimit } from '@granary/shared/postgres/listing';
import { transaction } from '@granary/shared/postgres/transaction';
import { message, type Handlers } from '@granary/shared/rpc/types';
import { listAuthzTransactions, type AuthzTransaction } from '../ledger/authz-transactions';
import { walletAccount } from '../ledger/kinds';
import { listMovements, type AccountMovement } from '../ledger/movements';
import { checkPage } from '../page';
import { payoutHandlers, required, type PayoutHandlerOptions } from './payouts';
import type { PricesIn } from '../usage/prices';
import { listRetentionCosts, type CollectionCost } from '../usage/retention-costs';
import { getWallet, type Wallet } from '../wallets/wallet';

export interface HandlerOptions extends PayoutHandlerOptions {
  pricesIn: PricesIn;
  now: () => Date;
}

/** The Finance service. The gateway has checked that the application exists. */
export function financeHandlers(
  options: HandlerOptions,
): Omit<Handlers<FinanceDefinition>, 'createGrant' | 'listGrants' | 'revokeGrant'> {
  const { wallets, pricesIn, now } = options;
  return {
    getWallet: async ({ appId }) => toWallet(await getWallet(wallets, required(appId))),

    listWalletEntries: async ({ appId, limit, cursor }) => {
      const page = { limit: checkListingLimit(limit), cursor };
      const { entries, nextCursor } = await listMovements(wallets.pool, walletAccount(required(appId)), page);
      return { entries: entries.map(toWalletEntry), nextCursor };
    },

    ...payoutHandlers(options),

    getRetentionCost: async ({ appId }) => {
      const app = required(appId);
      const costs = await transaction(wallets.pool, (tx) => listRetentionCosts(tx, pricesIn(tx), app, now()), {
        isolation: 'repeatable read',
        readOnly: true,
      });
      const total = costs.reduce((sum, { monthlyCost }) => sum + monthlyCost, 0n);
      return { collections: costs.map(toCollectionCost), totalMonthlyCost: total.toString() };
    },

    listTransactions: async ({ userAddress, appId, ...page }) => {
      if ((userAddress === '') === (appId === '')) throw invalid('Either a user or an application is needed');
      const party = appId === '' ? { userAddress } : { appId };
      const { items, total } = await listAuthzTransactions(wallets.pool, party, checkPage(page));
      return { transactions: items.map(toTransaction), total: total.toString() };
    },
  };
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

const toWalletEntry = ({ id, amount, isCredit, kind, ref, createdAt }: AccountMovement): WalletEntryMessage => ({
  id,
  amount: amount.toString(),
  isCredit,
  kind,
  ref,
  createdAt: createdAt.toISOString(),
});

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
