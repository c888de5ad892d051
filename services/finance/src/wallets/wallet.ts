import { execute, row, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { StartError } from '@granary/shared/start-error';
import { walletAccount } from '../ledger/kinds';
import { addressOf } from '@granary/shared/money/cosmos/address';
import type { KeyProvider } from './keys';

/** The database, the keys and the prefix with which wallets are made. */
export interface Wallets {
  pool: Pool;
  keys: KeyProvider;
  /** The prefix of the addresses, e.g. `celestia`. */
  addressPrefix: string;
}

/** The conditions and the destination of an application's payouts; amounts in utia. */
export interface PayoutSettings {
  autoPayoutEnabled: boolean;
  /** Kept back from payouts; it only ever grows. */
  lockedBalance: bigint;
  minPayout: bigint;
  payoutThreshold: bigint;
  payoutDestination: string | null;
}

/** The wallet of an application; amounts in utia. */
export interface Wallet {
  appId: string;
  address: string;
  balance: bigint;
  /** Held for payouts that are not final. */
  pendingPayouts: bigint;
  /** The amount that may be paid out. It is never negative, even when more is locked than the balance. */
  available: bigint;
  /** All that was ever credited. */
  totalEarned: bigint;
  /** All that was ever debited, without payouts. */
  totalSpent: bigint;
  totalPaidOut: bigint;
  settings: PayoutSettings;
  updatedAt: Date;
}

/**
 * The wallet of an application, created at its first use; its address never changes. The caller has checked that the
 * application exists.
 */
export async function getWallet(wallets: Wallets, appId: string): Promise<Wallet> {
  const existing = await readWallet(wallets.pool, appId);
  if (existing) return existing;
  await makeWallet(wallets, appId);
  return (await readWallet(wallets.pool, appId))!;
}

interface WalletRow extends PayoutSettings {
  address: string;
  debitsPending: bigint;
  debitsPosted: bigint;
  creditsPosted: bigint;
  payoutsPending: bigint;
  payoutsPosted: bigint;
  updatedAt: Date;
}

/** One statement, so that the figures belong together. */
async function readWallet(db: Queryable, appId: string): Promise<Wallet | undefined> {
  const wallet = await row<WalletRow>(
    db,
    sql`select w.address, w.auto_payout_enabled as "autoPayoutEnabled", w.locked_balance as "lockedBalance",
               w.min_payout as "minPayout", w.payout_threshold as "payoutThreshold",
               w.payout_destination as "payoutDestination", a.debits_pending as "debitsPending",
               a.debits_posted as "debitsPosted", a.credits_posted as "creditsPosted",
               a.payouts_pending as "payoutsPending", a.payouts_posted as "payoutsPosted", greatest(w.updated_at, a.updated_at) as "updatedAt"
        from wallet w join account a on a.id = w.account_id where w.app_id = ${appId}`,
  );
  if (!wallet) return undefined;
  const { address, debitsPending, debitsPosted, creditsPosted, payoutsPending, payoutsPosted, updatedAt, ...settings } =
    wallet;
  // Another hold than that of a payout lowers the balance: it is as good as spent.
  const balance = creditsPosted - debitsPosted - (debitsPending - payoutsPending);
  return {
    appId,
    address,
    balance,
    pendingPayouts: payoutsPending,
    available: availableOf({ balance, pending: payoutsPending, locked: settings.lockedBalance }),
    totalEarned: creditsPosted,
    totalSpent: debitsPosted - payoutsPosted,
    totalPaidOut: payoutsPosted,
    settings,
    updatedAt,
  };
}

export function availableOf(amounts: { balance: bigint; pending: bigint; locked: bigint }): bigint {
  const left = amounts.balance - amounts.pending - amounts.locked;
  return left > 0n ? left : 0n;
}

/**
 * The loser of a race changes nothing and leaves a number of the sequence unused. Any of the unique indexes may detect
 * the conflict, so the statement names none of them.
 */
async function makeWallet({ pool, keys, addressPrefix }: Wallets, appId: string): Promise<void> {
  const { index } = (await row<{ index: bigint }>(pool, sql`select nextval('wallet_index') as index`))!;
  const address = addressOf(await keys.publicKey({ wallet: Number(index) }), addressPrefix);
  await execute(
    pool,
    sql`with opened as (insert into account (id) values (${walletAccount(appId)}) on conflict do nothing)
        insert into wallet (app_id, address_index, address, account_id)
        values (${appId}, ${index}, ${address}, ${walletAccount(appId)}) on conflict do nothing`,
  );
}

/** The seed or the prefix is not the one that the addresses in the database were made from. */
export class WalletOriginError extends StartError {
  override readonly name = 'WalletOriginError';
}

/** Whether the database has been bound to a seed, so that a missing one must not be replaced by a new one. */
export async function hasWalletOrigin(db: Queryable): Promise<boolean> {
  return (await row(db, sql`select from wallet_origin`)) !== undefined;
}

/**
 * Binds a new database to the seed and prefix; throws a WalletOriginError when it was bound to others: money that is
 * sent to the addresses that it has given out could not be reached, and new ones would not belong to them.
 */
export async function assertWalletOrigin({ pool, keys, addressPrefix }: Wallets): Promise<void> {
  await execute(
    pool,
    sql`insert into wallet_origin (seed_fingerprint, address_prefix) values (${keys.fingerprint}, ${addressPrefix})
        on conflict do nothing`,
  );
  const origin = (await row<{ fingerprint: string; prefix: string }>(
    pool,
    sql`select seed_fingerprint as fingerprint, address_prefix as prefix from wallet_origin`,
  ))!;
  if (origin.fingerprint !== keys.fingerprint) {
    throw new WalletOriginError(
      'The key file holds another seed than the one that the wallets of this database were made from: put the original back',
    );
  }
  if (origin.prefix !== addressPrefix) {
    throw new WalletOriginError(
      `The wallets of this database have addresses that begin with "${origin.prefix}": ADDRESS_PREFIX cannot be changed any more. Start with ADDRESS_PREFIX=${origin.prefix}`,
    );
  }
}
