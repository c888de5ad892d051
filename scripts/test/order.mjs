import { readFileSync } from 'node:fs';
import path from 'node:path';
import { keyOf, readHistory } from './history.mjs';

/** @import { Test } from '@jest/test-result' */

/** Holds the suites that changed, as a list in JSON of paths from the root of the repository. */
export const changedVariable = 'GRANARY_TEST_CHANGED';

const root = path.dirname(path.dirname(import.meta.dirname));

/**
 * In seconds of a core of the machine for which limits of tests are written (services/testing/src/speed.ts): the
 * `total` of `npm test`; the `parts` it has, which are the static checks and the projects of jest; what each of the
 * coming features adds `later`; what `each` suite of a project may take, and the `suites` that may take more.
 * @type {{ total: number } & Record<'parts' | 'later' | 'each' | 'suites', Record<string, number>>}
 */
export const budgets = JSON.parse(readFileSync(path.join(root, 'services/test-budgets.json'), 'utf8'));

/** What a suite may take, in core-seconds. @param {{ project: string, suite: string }} suite */
export const budgetOf = ({ project, suite }) => budgets.suites[suite] ?? budgets.each[project] ?? 0;

/** Which suite a test of jest is. @param {Test} test */
export const identify = ({ context, path: file }) => ({
  project: context.config.displayName?.name ?? '',
  suite: path.relative(root, file),
});

/**
 * What a suite will take on this machine, in milliseconds, by its last run, or by its budget.
 * @param {{ project: string, suite: string }} suite @param {ReturnType<typeof readHistory>} history
 */
export function estimateMs(suite, history) {
  const last = history.get(keyOf(suite));
  const onReferenceMs = last ? last.wallMs / last.slowness : budgetOf(suite) * 1000;
  return onReferenceMs * Number(process.env.GRANARY_TEST_SLOWNESS ?? 1);
}

/** The projects of jest whose suites share stacks, and Granaries in one process, in the order in which they run. */
const sharing = ['stack', 'front'];

/** What the suites that are left will take on this machine, by `keyOf`, in milliseconds. @type {Map<string, number>} */
export const expectedMs = new Map();

/**
 * The order of suites, as jest asks for it. What failed in its last run comes first, then what changed, then project by
 * project, so that what a project shares runs no longer than it, and within one the longest: the last suite to end
 * decides when the run ends. A machine without a history, such as that of CI, knows the longest by their budgets.
 */
export default class SuiteSequencer {
  /** @param {Test[]} tests */
  sort(tests) {
    const history = readHistory();
    const changed = new Set(JSON.parse(process.env[changedVariable] ?? '[]'));
    const suites = tests.map((test) => {
      const suite = identify(test);
      const ms = estimateMs(suite, history);
      expectedMs.set(keyOf(suite), ms);
      const hasFailed = history.get(keyOf(suite))?.hasFailed;
      const phase = sharing.indexOf(suite.project);
      const rank = hasFailed ? 0 : changed.has(suite.suite) ? 1 : 2;
      return { test, ms, rank, phase: phase < 0 ? sharing.length : phase };
    });
    return suites.sort((a, b) => a.rank - b.rank || a.phase - b.phase || b.ms - a.ms).map(({ test }) => test);
  }

  /** What jest would note for its own order is in the history already. */
  cacheResults() {}
}
