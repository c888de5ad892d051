import { row, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { findDefect, type Command, type Group, type Refusal, type Result } from './commands';

/**
 * Applies groups of commands in their order, in one round trip: a result for each command of each group. A group that
 * is refused changes nothing and leaves the others alone. In a transaction of the caller, the accounts stay locked
 * until it ends.
 *
 * Throws what Postgres raises; after an error by which the connection was lost the outcome is unknown, and the same
 * groups must be applied again. So they must after a unique violation, by which nothing was applied: a concurrent call
 * has used one of the ids.
 */
export async function applyCommands(db: Queryable, groups: readonly Group[]): Promise<Result[][]> {
  const defects = groups.map((group) => group.map(findDefect));
  const isSound = (at: number) => defects[at]!.every((defect) => defect === undefined);
  const sound = groups.filter((_, index) => isSound(index));
  const applied = sound.length === 0 ? [] : await applySound(db, sound);
  let next = 0;
  return groups.map((_, index) => (isSound(index) ? applied[next++]! : defects[index]!.map(refusedWith)));
}

const refusedWith = (reason: Refusal = 'LINKED_FAILED'): Result => ({ outcome: 'refused', reason });

async function applySound(db: Queryable, groups: readonly Group[]): Promise<Result[][]> {
  const columns = toColumns(groups);
  const { results, moved } = (await row<{ results: string[]; moved: Array<string | null> }>(
    db,
    sql`select results, moved from apply_commands(${columns.ids}, ${columns.groups}, ${columns.phases}, ${columns.debits},
          ${columns.credits}, ${columns.amounts}, ${columns.atMost}, ${columns.kinds}, ${columns.refs}, ${columns.holds},
          ${columns.expiries})`,
  ))!;
  let next = 0;
  return groups.map((group) =>
    group.map(() => {
      const index = next++;
      const outcome = results[index]!;
      return outcome === 'created' || outcome === 'exists'
        ? { outcome, amount: BigInt(moved[index]!) }
        : refusedWith(outcome as Refusal);
    }),
  );
}

const phases = { transfer: 'posted', hold: 'pending', post: 'post', void: 'void' } as const;

/** The parameters of `apply_commands` (migrations/repeatable/apply_commands.sql): an array for each field. */
function toColumns(groups: readonly Group[]) {
  const columns = {
    ids: [] as string[],
    groups: [] as number[],
    phases: [] as string[],
    debits: [] as Array<string | null>,
    credits: [] as Array<string | null>,
    amounts: [] as Array<bigint | null>,
    atMost: [] as boolean[],
    kinds: [] as string[],
    refs: [] as Array<string | null>,
    holds: [] as Array<string | null>,
    expiries: [] as Array<Date | null>,
  };
  for (const [group, commands] of groups.entries()) {
    for (const command of commands) {
      columns.groups.push(group);
      append(columns, command);
    }
  }
  return columns;
}

function append(columns: ReturnType<typeof toColumns>, command: Command): void {
  const moves = command.type === 'transfer' || command.type === 'hold';
  columns.ids.push(command.id);
  columns.phases.push(phases[command.type]);
  columns.kinds.push(command.kind);
  columns.debits.push(moves ? command.debitAccount : null);
  columns.credits.push(moves ? command.creditAccount : null);
  columns.refs.push(moves ? command.ref : null);
  columns.holds.push(moves ? null : command.holdId);
  columns.amounts.push(command.type === 'void' ? null : (command.amount ?? null));
  columns.atMost.push(command.type === 'transfer' && command.atMost === true);
  columns.expiries.push((command.type === 'hold' && command.expiresAt) || null);
}
