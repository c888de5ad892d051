import { randomUUID } from 'node:crypto';
import { conflict, unavailable, type ServiceError } from '@granary/shared/errors';
import { execute, row, rows, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { applyCommands } from '../ledger/apply-commands';
import type { HoldCommand } from '../ledger/commands';
import { transferId } from '@granary/shared/money/transfer-id';
import { availableOf } from '../wallets/wallet';
import type { Payout } from './payouts';
import { findRefusedDestinations, targetKey } from './refused-destinations';

export const PAYOUT_DESTINATION_MISSING = 'PAYOUT_DESTINATION_MISSING';
export const PAYOUT_BELOW_MINIMUM = 'PAYOUT_BELOW_MINIMUM';

/** Payouts that may wait for a transaction. */
const waitingMax = 10_000;

export interface PayoutRequest {
  appId: string;
  trigger: Payout['trigger'];
  /** Undefined: all that is available. */
  amount?: bigint | undefined;
  /** The destination of this payout only. Undefined: the destination in the settings. */
  destination?: string | undefined;
  /** The application was deleted: its locked money is paid out too, and no minimum applies. */
  isLast?: boolean;
}

export interface PayoutRules {
  /** Nothing smaller is sent. */
  floorUtia: bigint;
  /** The account of the chain, which the money goes to. */
  chainAccount: string;
}

/** A wallet and what it can pay out, as of the moment when it was locked. */
interface Source {
  accountId: string;
  destination: string | null;
  minimum: bigint;
  available: bigint;
}

/**
 * Starts payouts: stores them and holds their amounts, in the transaction of the caller. A request that is refused
 * changes nothing and leaves the others alone. Every wallet must exist.
 */
export async function reservePayouts(
  tx: Connection,
  requests: readonly PayoutRequest[],
  rules: PayoutRules,
): Promise<Array<Payout | ServiceError>> {
  const { sources, at: now } = await lockSources(tx, requests, rules);
  const refused = await findRefused(tx, requests, sources);
  const reserved = requests.map((request, place) => {
    const source = sources.get(request.appId)!;
    const refusal = findRefusal(request, source) ?? refused[place];
    if (refusal) return refusal;
    const amountUtia = request.amount ?? source.available;
    source.available -= amountUtia;
    const payout: Payout = {
      id: randomUUID(),
      amountUtia,
      destination: request.destination ?? source.destination!,
      trigger: request.trigger,
      status: 'pending',
      txHash: null,
      error: null,
      createdAt: now,
      updatedAt: now,
    };
    return { payout, appId: request.appId, accountId: source.accountId, holdId: transferId(now, 'payout', payout.id) };
  });
  await store(
    tx,
    reserved.filter((each) => 'payout' in each),
    rules,
  );
  return reserved.map((each) => ('payout' in each ? each.payout : each));
}

/** Throws UNAVAILABLE while too many payouts wait for a transaction. */
export async function assertRoomForPayouts(tx: Connection): Promise<void> {
  const full = await row(
    tx,
    sql`select from payout where status = 'pending' and transaction_number is null and hold_id is not null
        offset ${waitingMax - 1} limit 1`,
  );
  if (full) throw unavailable('Too many payouts are waiting, try again later');
}

/** Locks wallets, then their accounts, so that what is available cannot change until the transaction ends. */
async function lockSources(
  tx: Connection,
  requests: readonly PayoutRequest[],
  { floorUtia }: PayoutRules,
): Promise<{ sources: Map<string, Source>; at: Date }> {
  const wallets = await rows<{
    appId: string;
    accountId: string;
    locked: bigint;
    min: bigint;
    destination: string | null;
  }>(
    tx,
    sql`select app_id as "appId", account_id as "accountId", locked_balance as locked, min_payout as min,
               payout_destination as destination
        from wallet where app_id = any(${requests.map(({ appId }) => appId)}) order by app_id for no key update`,
  );
  const accounts = await rows<{ id: string; free: bigint; at: Date }>(
    tx,
    sql`select id, credits_posted - debits_posted - debits_pending as free,
               date_trunc('milliseconds', clock_timestamp()) as at
        from account where id = any(${wallets.map(({ accountId }) => accountId)}) order by id for no key update`,
  );
  const last = new Set(requests.flatMap(({ appId, isLast }) => (isLast ? [appId] : [])));
  const free = new Map(accounts.map((account) => [account.id, account.free]));
  const sources = wallets.map(({ appId, accountId, locked, min, destination }): [string, Source] => {
    const isLast = last.has(appId);
    const available = availableOf({ balance: free.get(accountId)!, pending: 0n, locked: isLast ? 0n : locked });
    const minimum = min > floorUtia && !isLast ? min : floorUtia;
    return [appId, { accountId, destination, minimum, available }];
  });
  return { sources: new Map(sources), at: accounts[0]!.at };
}

/**
 * The refusals of triggered payouts to destinations that the chain refused lately, by place. When automatic ones end is
 * decided by `startAutoPayouts`.
 */
async function findRefused(
  tx: Connection,
  requests: readonly PayoutRequest[],
  sources: ReadonlyMap<string, Source>,
): Promise<Array<ServiceError | undefined>> {
  const targets = requests.map(({ appId, trigger, destination }) => {
    const to = destination ?? sources.get(appId)!.destination;
    return trigger === 'manual' && to !== null ? { appId, destination: to } : undefined;
  });
  const refusals = await findRefusedDestinations(
    tx,
    targets.filter((target) => target !== undefined),
  );
  return targets.map((target) => target && refusals.get(targetKey(target)));
}

function findRefusal(request: PayoutRequest, { destination, minimum, available }: Source): ServiceError | undefined {
  if ((request.destination ?? destination) === null) {
    return conflict(PAYOUT_DESTINATION_MISSING, 'There is no destination: set payout_destination, or give an address');
  }
  const amount = request.amount ?? available;
  if (amount > available || amount === 0n) {
    const details = { available_balance: Number(available) };
    return conflict('INSUFFICIENT_FUNDS', 'The available balance is too small', details);
  }
  if (amount < minimum) {
    return conflict(PAYOUT_BELOW_MINIMUM, `The smallest payout is ${minimum.toString()} utia`, {
      minimum: Number(minimum),
    });
  }
  return undefined;
}

interface Reserved {
  payout: Payout;
  appId: string;
  accountId: string;
  holdId: string;
}

async function store(tx: Connection, reserved: readonly Reserved[], { chainAccount }: PayoutRules): Promise<void> {
  if (reserved.length === 0) return;
  const values = <T>(value: (each: Reserved) => T): T[] => reserved.map(value);
  await execute(
    tx,
    sql`insert into payout (id, app_id, amount, destination, trigger, status, hold_id, created_at, updated_at)
        select id, app_id, amount, destination, trigger, 'pending', hold_id, at, at
        from unnest(${values(({ payout }) => payout.id)}::uuid[], ${values(({ appId }) => appId)}::text[],
          ${values(({ payout }) => payout.amountUtia)}::bigint[], ${values(({ payout }) => payout.destination)}::text[],
          ${values(({ payout }) => payout.trigger)}::text[], ${values(({ holdId }) => holdId)}::uuid[],
          ${values(({ payout }) => payout.createdAt)}::timestamptz[])
          p(id, app_id, amount, destination, trigger, hold_id, at)`,
  );
  const holds = values(({ payout, accountId, holdId }): [HoldCommand] => [
    {
      type: 'hold',
      id: holdId,
      kind: 'payout',
      debitAccount: accountId,
      creditAccount: chainAccount,
      amount: payout.amountUtia,
      ref: payout.id,
    },
  ]);
  for (const result of (await applyCommands(tx, holds)).flat()) {
    if (result.outcome !== 'created') throw new Error('the ledger refuses the hold of a payout that is covered');
  }
}
