import path from 'node:path';
import { openAccounts } from '@granary/finance/ledger/accounts';
import { applyCommands } from '@granary/finance/ledger/apply-commands';
import type { Result, TransferCommand } from '@granary/finance/ledger/commands';
import { LedgerBatches } from '@granary/finance/ledger/ledger-batches';
import { transferId } from '@granary/shared/money/transfer-id';
import { createLogger } from '@granary/shared/logger';
import { migrate } from '@granary/shared/postgres/migrate';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { serve } from '../child';

/**
 * The ledger of finance on a database of its own, with callers in the same process. `stop` may come before `start` has
 * set these.
 */
let pool: Pool;
let ledger: LedgerBatches;
let lastNumber = 0;

const accountsCount = 20_000;
/** Commands that wait for their results at once: enough to fill batches, and one for each connection. */
const callers = { batched: 1_500, singly: 16 };
const tickMs = 5;
const kind = 'spend';

type Mode = keyof typeof callers;

const log = createLogger('bench', 'error');
const accounts = Array.from({ length: accountsCount }, (_, index) => `app:bench-${index}`);

/** Makes an id like a real one: transfers that are close in time are close in the index. */
const newId = (): string => transferId(new Date(), kind, String(++lastNumber));

const anyAccount = () => accounts[Math.floor(Math.random() * accountsCount)]!;

/** A transfer between two random wallets; with `isHot` one of the two is always the same wallet. */
function newTransfer(isHot: boolean): TransferCommand {
  const [one, other] = [isHot ? 'app:hot' : anyAccount(), anyAccount()];
  const [debitAccount, creditAccount] = Math.random() < 0.5 ? [one, other] : [other, one];
  if (debitAccount === creditAccount) return newTransfer(isHot);
  return { type: 'transfer', id: newId(), debitAccount, creditAccount, amount: 1n, kind, ref: 'bench' };
}

const send: Record<Mode, (command: TransferCommand) => Promise<Result[]>> = {
  batched: (command) => ledger.apply([command]),
  singly: async (command) => (await applyCommands(pool, [[command]]))[0]!,
};

async function assertCreated(results: Promise<Result[]>): Promise<void> {
  const result = (await results)[0]!;
  if (result.outcome === 'refused') throw new Error(`A transfer was refused: ${result.reason}.`);
  if (result.outcome !== 'created') throw new Error(`A transfer was ${result.outcome}.`);
}

const calls = {
  start: async (databaseUrl: string) => {
    pool = createPool({ url: databaseUrl, size: callers.singly, applicationName: 'bench-ledger', log });
    ledger = new LedgerBatches({ pool, log });
    const finance = path.dirname(require.resolve('@granary/finance/service'));
    await migrate(pool, path.join(finance, '..', 'migrations'));
    await openAccounts(pool, [{ id: 'chain:bench', unit: 'utia', mayOverdraw: true }]);
    const wallets = [...accounts, 'app:hot'].map((id) => ({ id, unit: 'utia', mayOverdraw: false }));
    const gift = {
      type: 'transfer',
      debitAccount: 'chain:bench',
      amount: 1_000_000_000n,
      kind: 'deposit',
      ref: '',
    } as const;
    for (let from = 0; from < wallets.length; from += 1_000) {
      const some = wallets.slice(from, from + 1_000);
      await openAccounts(pool, some);
      const give = ({ id }: { id: string }) =>
        assertCreated(ledger.apply([{ ...gift, id: newId(), creditAccount: id }]));
      await Promise.all(some.map(give));
    }
  },
  /** Sends as many transfers as the ledger takes. Returns transfers per second. */
  run: async ({ mode, isHot, seconds }: { mode: Mode; isHot: boolean; seconds: number }) => {
    const startedMs = performance.now();
    const endMs = startedMs + seconds * 1000;
    let count = 0;
    const callOnAndOn = async () => {
      while (performance.now() < endMs) {
        await assertCreated(send[mode](newTransfer(isHot)));
        count++;
      }
    };
    await Promise.all(Array.from({ length: callers[mode] }, callOnAndOn));
    return (count * 1000) / (performance.now() - startedMs);
  },
  /** Sends transfers at a steady rate. Returns the 99th percentile of the time to a result, in milliseconds. */
  pace: async ({ perSecond, isHot, seconds }: { perSecond: number; isHot: boolean; seconds: number }) => {
    const delaysMs: number[] = [];
    const pending: Array<Promise<unknown>> = [];
    const startedMs = performance.now();
    for (let due = 0; due < perSecond * seconds;) {
      const elapsedMs = performance.now() - startedMs;
      for (; due < (elapsedMs * perSecond) / 1000; due++) {
        const sentMs = performance.now();
        pending.push(
          assertCreated(ledger.apply([newTransfer(isHot)])).then(() => delaysMs.push(performance.now() - sentMs)),
        );
      }
      await new Promise((resolve) => setTimeout(resolve, tickMs));
    }
    await Promise.all(pending);
    delaysMs.sort((a, b) => a - b);
    return delaysMs[Math.floor((delaysMs.length - 1) * 0.99)]!;
  },
  /** Adds `count` past transfers between the same accounts, without changing the counters of the accounts. */
  addHistory: async (count: number) => {
    const each = 50_000;
    for (let from = 0; from < count; from += each) {
      await pool.query(
        `insert into transfer (id, debit_account, credit_account, amount, phase, kind, ref)
         select uuidv7(), 'app:bench-' || at % $2, 'app:bench-' || (at + 1) % $2, 1, 'posted', 'spend', 'old'
         from generate_series($1::int, $1 + $3 - 1) at`,
        [from, accountsCount, each],
      );
    }
  },
  stop: () => pool?.end(),
};

export type LedgerCalls = typeof calls;

serve(calls);
