import { randomUUID } from 'node:crypto';
import * as fc from 'fast-check';
import { ServiceError } from '@granary/shared/errors';
import type { Pool } from '@granary/shared/postgres/pool';
import {
  holdTransfer,
  openAccount,
  postHold,
  postTransfer,
  readAccount,
  voidHold,
  type Account,
} from '../src/ledger/ledger';
import { financePool } from './support/harness';

let pool: Pool;
beforeAll(async () => {
  ({ pool } = await financePool(2));
});
afterAll(() => pool.end());

type Command =
  | { op: 'post' | 'hold'; id: number; debit: number; credit: number; amount: bigint; kind: 'test' | 'payout' }
  | { op: 'postHold'; id: number; hold: number; amount: bigint | undefined }
  | { op: 'voidHold'; id: number; hold: number };

/** Account 0 is the world outside. */
const accountCount = 4;
// So few ids that some are used again, for the same and for other content.
const id = fc.nat({ max: 90 });
const holdId = fc.nat({ max: 7 });
const amount = fc.bigInt({ min: 1n, max: 60n });
const move = <Op extends 'post' | 'hold'>(op: Op, ids: fc.Arbitrary<number>) =>
  fc
    .record({
      op: fc.constant(op),
      id: ids,
      debit: fc.oneof(fc.constant(0), fc.nat({ max: accountCount - 1 })),
      step: fc.integer({ min: 1, max: accountCount - 1 }),
      amount,
      kind: fc.constantFrom('test' as const, 'payout' as const),
    })
    .map(({ step, ...rest }) => ({ ...rest, credit: (rest.debit + step) % accountCount }));
const end = { id, hold: fc.oneof({ weight: 9, arbitrary: holdId }, { weight: 1, arbitrary: id }) };
const command: fc.Arbitrary<Command> = fc.oneof(
  { weight: 3, arbitrary: move('post', id) },
  { weight: 2, arbitrary: move('hold', holdId) },
  fc.record({ op: fc.constant('postHold' as const), ...end, amount: fc.option(amount, { nil: undefined }) }),
  fc.record({ op: fc.constant('voidHold' as const), ...end }),
);
/** Some commands are sent again later on. */
const commands = fc
  .array(fc.tuple(command, fc.boolean()), { minLength: 20, maxLength: 80 })
  .map((list) => list.flatMap(([each, again], at) => (again && at > 3 ? [each, list[at - 3]![0], each] : [each])));

interface Stored {
  debit: number;
  credit: number;
  amount: bigint;
  phase: 'post' | 'hold' | 'postHold' | 'voidHold';
  kind: string;
  hold?: number;
}

/** What the ledger should do, in plain maps. */
class Model {
  readonly transfers = new Map<number, Stored>();
  readonly ended = new Set<number>();
  readonly accounts: Account[] = Array.from({ length: accountCount }, () => ({
    debitsPending: 0n,
    debitsPosted: 0n,
    creditsPending: 0n,
    creditsPosted: 0n,
    payoutsPosted: 0n,
  }));

  apply(sent: Command): string {
    return 'hold' in sent ? this.end(sent) : this.move(sent);
  }

  private move({ op, id, debit, credit, amount, kind }: Extract<Command, { op: 'post' | 'hold' }>): string {
    const wanted: Stored = { debit, credit, amount, phase: op, kind };
    const found = this.transfers.get(id);
    if (found) return same(found, wanted) ? 'exists' : 'TRANSFER_ID_TAKEN';
    const from = this.accounts[debit]!;
    const to = this.accounts[credit]!;
    if (debit !== 0 && from.debitsPending + from.debitsPosted + amount > from.creditsPosted)
      return 'INSUFFICIENT_FUNDS';
    this.transfers.set(id, wanted);
    if (op === 'hold') {
      from.debitsPending += amount;
      to.creditsPending += amount;
    } else this.post(wanted, amount);
    return 'created';
  }

  private end(sent: Extract<Command, { op: 'postHold' | 'voidHold' }>): string {
    const hold = this.transfers.get(sent.hold);
    if (hold?.phase !== 'hold') return 'HOLD_NOT_FOUND';
    const amount = (sent.op === 'postHold' ? sent.amount : undefined) ?? hold.amount;
    if (amount > hold.amount) return 'HOLD_EXCEEDED';
    const wanted: Stored = { ...hold, phase: sent.op, amount, hold: sent.hold };
    const found = this.transfers.get(sent.id);
    if (found) return same(found, wanted) ? 'exists' : 'TRANSFER_ID_TAKEN';
    if (this.ended.has(sent.hold)) return 'HOLD_ENDED';
    this.ended.add(sent.hold);
    this.transfers.set(sent.id, wanted);
    this.accounts[hold.debit]!.debitsPending -= hold.amount;
    this.accounts[hold.credit]!.creditsPending -= hold.amount;
    if (sent.op === 'postHold') this.post(hold, amount);
    return 'created';
  }

  private post({ debit, credit, kind }: Stored, amount: bigint): void {
    this.accounts[debit]!.debitsPosted += amount;
    this.accounts[credit]!.creditsPosted += amount;
    if (kind === 'payout') this.accounts[debit]!.payoutsPosted += amount;
  }
}

function same(a: Stored, b: Stored): boolean {
  const fields = ['debit', 'credit', 'amount', 'phase', 'kind', 'hold'] as const;
  return fields.every((field) => a[field] === b[field]);
}

/** The real ledger under the numbers of the model. */
function ledger(run: string) {
  const ids = new Map<number, string>();
  const uuid = (number: number) => {
    const known = ids.get(number) ?? randomUUID();
    ids.set(number, known);
    return known;
  };
  const account = (number: number) => `model-${run}-${number}`;
  const send = (sent: Command): Promise<string> => {
    const id = uuid(sent.id);
    if (sent.op === 'postHold') {
      return postHold(pool, { id, holdId: uuid(sent.hold), ...(sent.amount && { amountUtia: sent.amount }) });
    }
    if (sent.op === 'voidHold') return voidHold(pool, { id, holdId: uuid(sent.hold) });
    const { kind, amount: amountUtia } = sent;
    const moved = {
      id,
      debitAccount: account(sent.debit),
      creditAccount: account(sent.credit),
      amountUtia,
      kind,
      ref: '',
    };
    return sent.op === 'post' ? postTransfer(pool, moved) : holdTransfer(pool, moved);
  };
  return { account, send };
}

test('the ledger answers and counts as a model of maps does, whatever is sent in whatever order', async () => {
  const outcomes = new Map<string, number>();
  await fc.assert(
    fc.asyncProperty(commands, async (list) => {
      const model = new Model();
      const { account, send } = ledger(randomUUID());
      for (let at = 0; at < accountCount; at++) await openAccount(pool, account(at), { mayOverdraw: at === 0 });
      for (const sent of list) {
        const outcome = await send(sent).catch((error: unknown) => {
          if (error instanceof ServiceError) return error.reason;
          throw error;
        });
        expect(outcome).toBe(model.apply(sent));
        outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
      }
      for (let at = 0; at < accountCount; at++)
        expect(await readAccount(pool, account(at))).toEqual(model.accounts[at]);
    }),
    { numRuns: 50 },
  );
  // Else the generator has drifted and proves nothing.
  const expected = [
    'created',
    'exists',
    'TRANSFER_ID_TAKEN',
    'INSUFFICIENT_FUNDS',
    'HOLD_NOT_FOUND',
    'HOLD_EXCEEDED',
    'HOLD_ENDED',
  ];
  for (const outcome of expected) expect([outcome, outcomes.get(outcome) ?? 0]).not.toEqual([outcome, 0]);
  expect([...outcomes.values()].reduce((sum, count) => sum + count, 0)).toBeGreaterThan(2_000);
});
