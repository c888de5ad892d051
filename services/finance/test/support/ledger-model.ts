import type { Account } from '../../src/ledger/accounts';
import type { Command, Group, Refusal, Result } from '../../src/ledger/commands';

export interface ModelAccount extends Account {
  unit: string;
  mayOverdraw: boolean;
}

interface Stored {
  command: Command;
  debit: string;
  credit: string;
  ref: string;
  amount: bigint;
}

const max = 2n ** 53n - 1n;
const noCounters = {
  debitsPending: 0n,
  debitsPosted: 0n,
  creditsPending: 0n,
  creditsPosted: 0n,
  payoutsPending: 0n,
  payoutsPosted: 0n,
};

/** What the ledger should do, in plain maps: one command after the other. */
export class LedgerModel {
  readonly accounts = new Map<string, ModelAccount>();
  private transfers = new Map<string, Stored>();
  private ended = new Set<string>();

  open(id: string, unit: string, mayOverdraw: boolean): void {
    this.accounts.set(id, { ...noCounters, unit, mayOverdraw });
  }

  apply(group: Group): Result[] {
    const before = {
      accounts: structuredClone(this.accounts),
      transfers: new Map(this.transfers),
      ended: new Set(this.ended),
    };
    const results: Result[] = [];
    for (const command of group) {
      const isFailed = results.some(({ outcome }) => outcome === 'refused');
      results.push(isFailed ? refused('LINKED_FAILED') : this.applyOne(command));
    }
    const isWhole = (['created', 'exists'] as const).some((each) => results.every(({ outcome }) => outcome === each));
    if (group.length === 1 || isWhole) return results;
    for (const [id, account] of before.accounts) this.accounts.set(id, account);
    this.transfers = before.transfers;
    this.ended = before.ended;
    return results.map((result) => {
      if (result.outcome === 'created') return refused('LINKED_FAILED');
      return result.outcome === 'exists' ? refused('TRANSFER_ID_TAKEN') : result;
    });
  }

  private applyOne(command: Command): Result {
    const found = this.transfers.get(command.id);
    if (found)
      return isSame(this.withAmount(found.command), this.withAmount(command))
        ? { outcome: 'exists', amount: found.amount }
        : refused('TRANSFER_ID_TAKEN');
    return command.type === 'post' || command.type === 'void' ? this.end(command) : this.move(command);
  }

  /** A `post` without an amount is one of all that is held, also where a part was posted under the same id. */
  private withAmount(command: Command): Command {
    if (command.type !== 'post' || command.amount !== undefined) return command;
    const held = this.transfers.get(command.holdId);
    return held ? { ...command, amount: held.amount } : command;
  }

  private move(command: Extract<Command, { type: 'transfer' | 'hold' }>): Result {
    const debit = this.accounts.get(command.debitAccount);
    const credit = this.accounts.get(command.creditAccount);
    if (!debit || !credit) return refused('ACCOUNT_NOT_FOUND');
    if (debit.unit !== credit.unit) return refused('UNIT_MISMATCH');
    if (command.type === 'hold' && command.expiresAt && command.expiresAt.getTime() < Date.now())
      return refused('EXPIRY_PASSED');
    const free = debit.creditsPosted - debit.debitsPosted - debit.debitsPending;
    let { amount } = command;
    if (!debit.mayOverdraw && amount > free) {
      if (command.type === 'hold' || !command.atMost) return refused('INSUFFICIENT_FUNDS');
      amount = free;
    }
    if (!credit.mayOverdraw && credit.creditsPosted + credit.creditsPending + amount > max)
      return refused('AMOUNT_OUT_OF_RANGE');
    const stored = { command, debit: command.debitAccount, credit: command.creditAccount, ref: command.ref, amount };
    if (command.type === 'hold') this.add(stored, { pending: amount, posted: 0n });
    else this.add(stored, { pending: 0n, posted: amount });
    return { outcome: 'created', amount };
  }

  private end(command: Extract<Command, { type: 'post' | 'void' }>): Result {
    const hold = this.transfers.get(command.holdId);
    if (hold?.command.type !== 'hold' || hold.command.kind !== command.kind) return refused('HOLD_NOT_FOUND');
    if (this.ended.has(command.holdId)) return refused('HOLD_ENDED');
    const amount = (command.type === 'post' ? command.amount : undefined) ?? hold.amount;
    if (amount > hold.amount) return refused('HOLD_EXCEEDED');
    this.ended.add(command.holdId);
    this.add({ ...hold, command, amount }, { pending: -hold.amount, posted: command.type === 'post' ? amount : 0n });
    return { outcome: 'created', amount };
  }

  private add(stored: Stored, { pending, posted }: { pending: bigint; posted: bigint }): void {
    this.transfers.set(stored.command.id, stored);
    const debit = this.accounts.get(stored.debit)!;
    const credit = this.accounts.get(stored.credit)!;
    debit.debitsPending += pending;
    debit.debitsPosted += posted;
    credit.creditsPending += pending;
    credit.creditsPosted += posted;
    if (stored.command.kind !== 'payout') return;
    debit.payoutsPending += pending;
    debit.payoutsPosted += posted;
  }
}

const refused = (reason: Refusal): Result => ({ outcome: 'refused', reason });

function isSame(a: Command, b: Command): boolean {
  const fields = (command: Command) =>
    JSON.stringify(
      {
        atMost: false,
        ...command,
        expiresAt: 'expiresAt' in command ? command.expiresAt?.getTime() : undefined,
        amount: 'amount' in command ? command.amount?.toString() : undefined,
      },
      ['type', 'id', 'kind', 'debitAccount', 'creditAccount', 'ref', 'holdId', 'atMost', 'expiresAt', 'amount'],
    );
  return fields(a) === fields(b);
}
