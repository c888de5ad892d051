import { pause } from '@granary/shared/concurrency/backoff';
import { degraded, healthy, type Check } from '@granary/shared/health/check';
import { execute, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import { sql } from '@granary/shared/postgres/sql';
import type { Output } from '@granary/shared/money/cosmos/transaction';
import type { ChainGrants } from '../chain/chain-grants';
import { deliver, type Step } from '../outgoing/delivery';
import { signNext, transferFee, type Draft, type SigningOptions } from '../outgoing/sign-next';
import { deductionPurpose } from './deduction-purpose';
import { refuseLate, refuseUncovered } from './refuse-waiting';

/** Deductions that one transaction takes. */
const deductionsMax = 50;

export interface DeductionSigning extends SigningOptions {
  /** The address of the broker, who pays the fees. */
  broker: string;
  grants: Pick<ChainGrants, 'allowance' | 'spendable'>;
}

interface Waiting {
  id: string;
  amount: bigint;
  address: string;
  recipient: string;
  isSingle: boolean;
}

/** Takes what was deducted under grants, in one process of the service at a time. */
export function startDeductions(options: DeductionSigning & { everyMs: number }): {
  check: Check;
  stop(): Promise<void>;
} {
  const { pool, log, everyMs } = options;
  const shortage = { isShort: false };
  const task = startScheduledTask({
    pool,
    log,
    name: 'deductions',
    everyMs,
    run: async (stopping) => {
      while (!stopping.aborted) {
        const step = await advanceDeductions(options, shortage);
        if (step === 'idle') return;
        if (step === 'waiting') await pause(everyMs, stopping);
      }
    },
  });
  return {
    check: () => Promise.resolve(shortage.isShort ? degraded('the broker of grants lacks money for fees') : healthy),
    stop: () => task.stop(),
  };
}

/**
 * Makes the next step of the transaction that is in flight, or signs the next one. Notes in `shortage` whether the
 * broker lacks the fee of a single deduction: with more it takes as many as it can pay for.
 */
export async function advanceDeductions(options: DeductionSigning, shortage = { isShort: false }): Promise<Step> {
  const { pool, chain, broker, gasPrice } = options;
  const step = await deliver({ ...options, purpose: deductionPurpose }, broker);
  if (step !== 'idle') return step;
  if ((await refuseLate(pool)) > 0) return 'progress';
  const next = await listNext(pool);
  if (next.length === 0 && !shortage.isShort) return 'idle';
  const funds = await chain.balance(broker);
  shortage.isShort = funds < transferFee(1, gasPrice, true);
  const waiting = payable(next, funds, gasPrice);
  if (waiting.length === 0) return 'idle';
  if ((await refuseUncovered(options, waiting)) > 0) return 'progress';
  const isSigned = await signNext(options, { address: broker, key: 'broker' }, async (tx, balance) => {
    // Deductions that have come since were not compared with what the chain allows.
    const examined = payable(await lockExamined(tx, waiting), balance, gasPrice);
    return examined.length === 0 ? undefined : draftOf(examined);
  });
  return isSigned ? 'progress' : 'idle';
}

/** The first of them, as many as the broker can pay the fee of one transaction for. */
function payable(deductions: readonly Waiting[], funds: bigint, gasPrice: number): readonly Waiting[] {
  let count = deductions.length;
  while (count > 0 && funds < transferFee(count, gasPrice, true)) count -= 1;
  return deductions.slice(0, count);
}

const draftOf = (deductions: readonly Waiting[]): Draft => ({
  outputs: deductions.map(({ recipient: address, amount, address: granter }): Output => ({ address, amount, granter })),
  stored: async (tx, number) => {
    await execute(
      tx,
      sql`update grant_deduction set transaction_number = ${number}, updated_at = clock_timestamp()
          where id = any(${deductions.map(({ id }) => id)}::uuid[])`,
    );
  },
});

const columns = sql`id, amount, address, recipient, is_single as "isSingle"`;
const isWaiting = sql`state = 'pending' and transaction_number is null`;
const inOrder = sql`order by is_single desc, created_at, id`;

/** The deductions of the next transaction: a single one, if it has to be repeated by itself, else the oldest. */
async function listNext(db: Pool): Promise<Waiting[]> {
  const waiting = await rows<Waiting>(
    db,
    sql`select ${columns} from grant_deduction where ${isWaiting} ${inOrder} limit ${deductionsMax}`,
  );
  return waiting[0]?.isSingle ? waiting.slice(0, 1) : waiting;
}

/** Locks the examined deductions that still wait. */
const lockExamined = (tx: Connection, examined: readonly Waiting[]): Promise<Waiting[]> =>
  rows<Waiting>(
    tx,
    sql`select ${columns} from grant_deduction where ${isWaiting} and id = any(${examined.map(({ id }) => id)}::uuid[])
        ${inOrder} for no key update`,
  );
