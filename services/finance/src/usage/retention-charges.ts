import type { Logger } from '@granary/shared/logger';
import { maxUtia } from '@granary/shared/money/amounts';
import { execute, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { openAccounts } from '../ledger/accounts';
import { applyCommands } from '../ledger/apply-commands';
import type { TransferCommand } from '../ledger/commands';
import { accountByName, walletAccount } from '../ledger/kinds';
import { transferId } from '@granary/shared/money/transfer-id';
import { nextChargeAt, owed, owedForNextPeriod, withCharge, type Generation } from './generation';
import { fromRow, generationColumns, toLaterText, type GenerationRow } from './generation-rows';
import type { Prices, PricesIn } from './prices';

/** How often periods that have ended are looked for. */
const everyMs = 60_000;
/** The time from the end of a period to its charge, in which late events of the period can still arrive. */
export const chargeDelayMs = 3_600_000;
/** Collections that one transaction charges. */
const batchMax = 200;
const feesAccount = 'platform:fees';

export interface RetentionChargesOptions {
  pool: Pool;
  pricesIn: PricesIn;
  now: () => Date;
  log: Logger;
}

/** Charges periods that have ended, in one process of the service at a time. */
export function startRetentionCharges(options: RetentionChargesOptions & { everyMs?: number | undefined }): {
  stop(): Promise<void>;
} {
  const { pool, log } = options;
  return startScheduledTask({
    pool,
    log,
    name: 'retention charges',
    everyMs: options.everyMs ?? everyMs,
    run: async (stopping) => {
      await openFeesAccount(pool);
      await scheduleMissing(pool);
      while (!stopping.aborted && (await chargeDuePeriods(options)) > 0);
    },
  });
}

/** Opens the account that charges go to. */
export const openFeesAccount = (pool: Pool): Promise<void> => openAccounts(pool, [accountByName(feesAccount)!]);

/** The end of a period of a collection. */
interface Charge {
  generation: Generation;
  period: number;
  at: Date;
  /** The amount owed at the time `at`. */
  amount: bigint;
}

/**
 * Charges the periods that ended first, up to a batch of collections and one period of each, and returns how many it
 * found. What an application cannot pay stays owed and is a part of the next charge. A charge, its transfer and the
 * number of periods charged are one transaction, and collections that another process charges are skipped: so each
 * period is charged once, whatever is interrupted or runs twice. The account of the platform's fees must exist.
 */
export function chargeDuePeriods({ pool, pricesIn, now, log }: RetentionChargesOptions): Promise<number> {
  return retriedTransaction(pool, async (tx) => {
    const due = await lockDue(tx, new Date(now().getTime() - chargeDelayMs));
    if (due.length === 0) return 0;
    const list = await pricesIn(tx).list();
    const prices: Prices = { list: () => Promise.resolve(list) };
    const charges: Charge[] = [];
    for (const generation of due) {
      const dueAt = nextChargeAt(generation)!;
      const amount = await owedForNextPeriod(generation, prices);
      charges.push({ generation, period: generation.chargedPeriods + 1, at: dueAt, amount });
    }
    const moved = await collect(tx, charges, log);
    await record(tx, charges, moved);
    return due.length;
  });
}

/**
 * Charges all that an application owes which is gone, before its next periods end: nothing accrues any more, and later
 * events about it are ignored. The wallet must be locked.
 */
export async function chargeDeletedApp(tx: Connection, appId: string, now: Date, log: Logger): Promise<void> {
  const generationRows = await rows<GenerationRow>(
    tx,
    sql`select ${generationColumns} from collection_generation
        where app_id = ${appId} and deleted_at is not null and next_charge_at is not null
        order by collection, number for no key update`,
  );
  const charges = generationRows.map(fromRow).map((generation): Charge => ({
    generation,
    period: generation.chargedPeriods + 1,
    at: generation.deletedAt! > now ? generation.deletedAt! : now,
    amount: owed(generation, generation.accrued),
  }));
  for (let from = 0; from < charges.length; from += batchMax) {
    const batch = charges.slice(from, from + batchMax);
    await record(tx, batch, await collect(tx, batch, log));
  }
}

/** Schedules the charges of collections that the release before this one has added during a rolling update. */
async function scheduleMissing(pool: Pool): Promise<void> {
  await execute(
    pool,
    sql`update collection_generation set next_charge_at = began_at + (charged_periods + 1) * interval '720 hours'
        where next_charge_at is null and began_at is not null and deleted_at is null`,
  );
}

/** The collections with a period that ended before `until`, the earliest first. Those that are locked are skipped. */
async function lockDue(tx: Connection, until: Date): Promise<Generation[]> {
  const generationRows = await rows<GenerationRow>(
    tx,
    sql`select ${generationColumns} from collection_generation where next_charge_at <= ${until}
        order by next_charge_at, app_id, collection, number limit ${batchMax} for no key update skip locked`,
  );
  return generationRows.map(fromRow);
}

/** Transfers what the applications can pay to the platform, and returns how much of each charge that was. */
async function collect(tx: Connection, charges: readonly Charge[], log: Logger): Promise<bigint[]> {
  const accounts = new Set(charges.map(({ generation }) => walletAccount(generation.appId)));
  // Without this, a wallet without money would get an entry of 0 for each collection and period. Money that arrives
  // after this look goes to the next charge.
  const solvent = await rows<{ id: string }>(
    tx,
    sql`select id from account where id = any(${[...accounts]}) and credits_posted - debits_posted - debits_pending > 0`,
  );
  const canPay = new Set(solvent.map(({ id }) => id));
  const paid = charges.filter(({ amount, generation }) => amount > 0n && canPay.has(walletAccount(generation.appId)));
  const results = paid.length === 0 ? [] : await applyCommands(tx, paid.map(toGroup));
  const moved = new Map<Charge, bigint>();
  for (const [index, charge] of paid.entries()) {
    const result = results[index]![0]!;
    if (result.outcome === 'refused') {
      const { appId, collection } = charge.generation;
      log.error({ app: appId, collection, reason: result.reason }, 'a charge for retention was refused, it stays owed');
    } else moved.set(charge, result.amount);
  }
  return charges.map((charge) => moved.get(charge) ?? 0n);
}

function toGroup({ generation, period, at: dueAt, amount }: Charge): [TransferCommand] {
  const { appId, collection, number } = generation;
  return [
    {
      type: 'transfer',
      id: transferId(dueAt, 'retention', `${appId}/${collection}/${number}/${period}`),
      kind: 'retention',
      debitAccount: walletAccount(appId),
      creditAccount: feesAccount,
      amount: amount < maxUtia ? amount : maxUtia,
      ref: `${collection}/${number}/${period}`,
      atMost: true,
    },
  ];
}

/** Stores charges, and schedules the next one of each collection unless it is deleted and has paid all that it owed. */
async function record(tx: Connection, charges: readonly Charge[], moved: readonly bigint[]): Promise<void> {
  if (charges.length === 0) return;
  const after = charges.map(({ generation }, index) => withCharge(generation, moved[index]!));
  const next = after.map((generation, index) => {
    const { at: dueAt, amount } = charges[index]!;
    const isOver = generation.deletedAt && generation.deletedAt <= dueAt && amount === moved[index];
    return isOver ? null : nextChargeAt(generation)!;
  });
  const pick = <T>(value: (charge: Charge) => T): T[] => charges.map(value);
  const key = sql`${pick(({ generation }) => generation.appId)}::text[], ${pick(({ generation }) => generation.collection)}::text[],
    ${pick(({ generation }) => generation.number)}::bigint[]`;
  await execute(
    tx,
    sql`with charged as (
          insert into retention_charge (app_id, collection, number, period, ended_at, amount, moved)
          select * from unnest(${key}, ${pick(({ period }) => period)}::int[], ${pick(({ at }) => at)}::timestamptz[],
            ${pick(({ amount }) => amount.toString())}::numeric[], ${[...moved]}::bigint[])
            c(app_id, collection, number, period, ended_at, amount, moved)
          where c.amount > 0
        )
        update collection_generation g set charged = c.charged, charged_periods = c.periods, accrued_later = c.later::jsonb,
          next_charge_at = c.next
        from unnest(${key}, ${after.map(({ charged }) => charged.toString())}::numeric[],
          ${after.map(({ chargedPeriods }) => chargedPeriods)}::int[],
          ${after.map(({ accruedLater }) => toLaterText(accruedLater))}::text[], ${next}::timestamptz[])
          c(app_id, collection, number, charged, periods, later, next)
        where g.app_id = c.app_id and g.collection = c.collection and g.number = c.number`,
  );
}
