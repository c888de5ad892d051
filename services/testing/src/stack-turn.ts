import { hash, runSeed } from './seeds';
import { isLong } from './size';

/**
 * `all`, or one of 0 to 4: which of the suites that are on the stack in turn are there. `npm run test:long` has all of
 * them.
 */
const turnVariable = 'GRANARY_TEST_STACK_TURN';
/** How many runs it takes until each of those suites has been there. */
const turns = 5;
const dayMs = 86_400_000;

export type Turn = number | 'all';

/** The suites that are on the stack in each run, and those that cannot be, by `folder/name`, each with the reason. */
export interface StackSuites {
  always: Record<string, string>;
  never: Record<string, string>;
}

/** The turn of a run by its seed: the day in it, which is that of the commit, so that two runs of one commit agree. */
export function turnOf(seed: string): number {
  const day = Date.parse(seed.slice(0, 'YYYY-MM-DD'.length)) / dayMs;
  return (Number.isInteger(day) ? day : hash(seed)) % turns;
}

/**
 * Returns the fifth of the other suites that is on the stack in this run, or `all`. Throws for a setting that is no
 * turn.
 */
export function stackTurn(): Turn {
  const setting = process.env[turnVariable] ?? (isLong ? 'all' : String(turnOf(runSeed())));
  if (setting === 'all') return setting;
  if (!/^[0-4]$/.test(setting)) throw new Error(`${turnVariable} is all, or 0 to 4`);
  return Number(setting);
}

/** Whether a suite, by `folder/name`, is on the stack in this run. */
export function isOnStackNow(suite: string, { always, never }: StackSuites, turn = stackTurn()): boolean {
  if (suite in never) return false;
  return suite in always || turn === 'all' || hash(suite) % turns === turn;
}
