// @ts-check
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { keyOf, readHistory } from './history.mjs';

/** @import { Test } from '@jest/test-result' */

/** Holds the suites that changed, as a list in JSON of paths from the root of the repository. */
export const changedVariable = 'GRANARY_TEST_CHANGED';

const root = path.dirname(path.dirname(import.meta.dirname));

/**
 * @typedef {object} Budgets Processor seconds on the machine for which limits of tests are written (services/testing/src/speed.ts).
 * @property {number} total of `npm test`
 * @property {Record<string, number>} parts of the total: what the static checks and all suites of a project of jest may take
 * @property {Record<string, number>} later what each of the coming features adds to the total
 * @property {Record<string, number>} each what a suite of a project may take that has no line of its own
 * @property {Record<string, number>} suites those that may take more
 */

const file = path.join(root, 'services/test-budgets.json');

/** @returns {Budgets} */
export const readBudgets = () => JSON.parse(readFileSync(file, 'utf8'));

const budgets = readBudgets();

/** What a suite may take, in core-seconds. @param {{ project: string, suite: string }} suite */
export const budgetOf = ({ project, suite }) => budgets.suites[suite] ?? budgets.each[project] ?? 0;

/** What is wrong with the sums of the file, a sentence each. @param {Budgets} budgets @returns {string[]} */
export function checkBudgets({ total, parts }) {
  const sum = Object.values(parts).reduce((all, part) => all + part, 0);
  return sum > total
    ? [`The parts of services/test-budgets.json add up to ${sum} core-seconds, more than ${total}.`]
    : [];
}

/** @param {Test} test */
export const identify = (test) => ({
  project: test.context.config.displayName?.name ?? '',
  suite: path.relative(root, test.path),
});

/** What the suites of this run will take on this machine, by `keyOf`, in milliseconds, set once their order is known. */
export const plan = { /** @type {Map<string, number>} */ expectedMs: new Map() };

/**
 * What failed in its last run comes first, then what changed, then the longest: the last suite to end decides when the run ends.
 * @template {{ project: string, suite: string }} Suite
 * @param {Suite[]} suites
 * @param {{ failed: Set<string>, changed: Set<string>, expectedMs: Map<string, number> }} known failed and expected by `keyOf`
 */
export function sortSuites(suites, { failed, changed, expectedMs }) {
  const rank = (/** @type {Suite} */ each) => (failed.has(keyOf(each)) ? 0 : changed.has(each.suite) ? 1 : 2);
  const expected = (/** @type {Suite} */ each) => expectedMs.get(keyOf(each)) ?? 0;
  return [...suites].sort((a, b) => rank(a) - rank(b) || expected(b) - expected(a));
}

/** The order of suites, as jest asks for it. A machine without a history, such as that of CI, knows the longest by their budgets. */
export default class SuiteSequencer {
  /** @param {Test[]} tests */
  sort(tests) {
    const slowness = Number(process.env.GRANARY_TEST_SLOWNESS ?? 1);
    const history = readHistory();
    const suites = tests.map((test) => ({ ...identify(test), test }));
    for (const suite of suites) {
      const last = history.get(keyOf(suite));
      const expected = last ? (last.wallMs / last.slowness) * slowness : budgetOf(suite) * 1000 * slowness;
      plan.expectedMs.set(keyOf(suite), expected);
    }
    const failed = [...history].filter(([, { outcome }]) => outcome === 'failed').map(([key]) => key);
    const changed = JSON.parse(process.env[changedVariable] ?? '[]');
    return sortSuites(suites, { ...plan, failed: new Set(failed), changed: new Set(changed) }).map(({ test }) => test);
  }

  /** What jest would note for its own order is in the history already. */
  cacheResults() {}
}
