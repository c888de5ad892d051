// @ts-check
import { existsSync } from 'node:fs';
import path from 'node:path';
import { runChild } from '../child.mjs';
import { checkBudgets, readBudgets } from './order.mjs';
import { step } from './run.mjs';
import { listSuites, reachedFrom } from './suites.mjs';
import { readProofs } from './verdicts.mjs';

/** @import { Run } from './run.mjs' */

const root = path.dirname(path.dirname(import.meta.dirname));
const cache = path.join(root, 'node_modules/.cache');
/** At the same time, one for each core of a small machine. */
const lanes = 2;

/** Runs a script of Node; its output is shown only when it fails. @param {string} file @param {string[]} args */
async function script(file, ...args) {
  const { code, output } = await runChild(process.execPath, [path.join(root, file), ...args], { cwd: root });
  if (code !== 0) throw new Error(output.trim());
}

/** The checks, longest first. @param {boolean} isCached @returns {[string, () => unknown][]} */
function listChecks(isCached) {
  const cached = (/** @type {string} */ name) =>
    isCached ? ['--cache', '--cache-strategy', 'content', '--cache-location', path.join(cache, name)] : [];
  const eslint = ['--max-warnings', '0', ...cached('eslint.json'), '.'];
  const prettier = ['--check', '--log-level', 'warn', ...cached('prettier.json'), '.'];
  return [
    ['lint', () => script('node_modules/eslint/bin/eslint.js', ...eslint)],
    ['types', () => script('node_modules/typescript/bin/tsc', '-p', 'services/tsconfig.json')],
    ['format', () => script('node_modules/prettier/bin/prettier.cjs', ...prettier)],
    ['rooms', () => script('scripts/rooms.mjs', '--check')],
    ['lists of proofs and budgets', checkLists],
  ];
}

/**
 * Starts the static checks, two at a time. `lastBegan` resolves once a core is free for suites. The first check that fails aborts
 * `signal` and stops the run: what it says is known within minutes, and whoever mends it runs everything again.
 * @param {Run} run
 * @param {{ isCached: boolean }} options
 */
export function startChecks(run, { isCached }) {
  const waiting = listChecks(isCached);
  const failure = new AbortController();
  const lane = async () => {
    for (let next = waiting.shift(); next && !run.isStopped; next = waiting.shift()) {
      const [name, work] = next;
      if (await step(run, name, work)) continue;
      run.isStopped = true;
      failure.abort(`${name} has failed`);
    }
  };
  const all = Array.from({ length: lanes }, lane);
  return { lastBegan: Promise.race(all), ended: Promise.all(all), signal: failure.signal };
}

/**
 * Throws what is wrong with the lists that name suites: a suite whose cases are generated is in `services/proofs.json`, so that a
 * counterexample counts as one, what the lists name exists, and the budgets are within theirs.
 */
export function checkLists() {
  const proofs = readProofs();
  const budgets = readBudgets();
  // By itself or by what lies beside it for tests.
  const isGenerated = (/** @type {string} */ suite) => {
    const reached = reachedFrom(suite, (file) => file === suite || /\/test\/support\/|\/e2e\//.test(file));
    return (
      ['size', 'seeds'].some((name) => reached.has(`services/testing/src/${name}.ts`)) && !suite.includes('/testing/')
    );
  };
  const problems = [
    ...listSuites()
      .filter((suite) => isGenerated(suite) && !(suite in proofs))
      .map((suite) => `${suite} generates cases, but services/proofs.json does not name it.`),
    ...[...Object.keys(proofs), ...Object.keys(budgets.suites)]
      .filter((suite) => !existsSync(path.join(root, suite)))
      .map((suite) => `services/proofs.json or services/test-budgets.json names ${suite}, which does not exist.`),
    ...checkBudgets(budgets),
  ];
  if (problems.length > 0) throw new Error(problems.join('\n'));
}
