import { readFileSync } from 'node:fs';
import path from 'node:path';
import { runJest, runTimeoutMs } from '../jest.mjs';

/** @import { SuiteResult } from './reporter.mjs' */

/**
 * @typedef {SuiteResult & { output?: string }} Attempt A run of a suite; one that was repeated has the output of jest.
 * @typedef {{ test: string, isFlaky: boolean, failed: Attempt[], passed: Attempt[] }} Verdict About a test that failed
 * in one of them at least, or about the suite itself, whose name is empty.
 */

const root = path.dirname(path.dirname(import.meta.dirname));
/** How often a test that failed has to pass, so that it is not failed but flaky. */
export const repeats = 3;
/** More suites than these fail by one fault, and there is no use in running each of them again. */
const suitesMax = 10;
/** For all that is repeated after a pass. What was not repeated in it counts as failed. */
const repeatTimeoutMs = 12 * 60_000;

/**
 * The suites of generated cases, each with the number of shards, of two minutes each, that it takes at its full size,
 * and whether it guards money or what was acknowledged.
 * @returns {Record<string, { shards: number, isFirst?: boolean }>}
 */
export const readProofs = () => JSON.parse(readFileSync(path.join(root, 'services/proofs.json'), 'utf8'));

/** @param {string} test @returns {(attempt: Attempt) => boolean} */
const isFailedIn = (test) => (attempt) => attempt.failures.some((failure) => failure.test === test);

/**
 * What several runs of one suite with the same seed say about each of its tests that failed in one of them. A
 * counterexample that generated cases have found is one, however seldom it shows.
 * @param {Attempt[]} attempts @param {boolean} isProof
 * @returns {Verdict[]}
 */
export function judge(attempts, isProof) {
  const tests = new Set(attempts.flatMap(({ failures }) => failures.map(({ test }) => test)));
  return [...tests].map((test) => {
    const failed = attempts.filter(isFailedIn(test));
    const others = attempts.filter((attempt) => !failed.includes(attempt));
    const passed = others.filter((attempt) => test === '' || attempt.passed.includes(test));
    return { test, isFlaky: !isProof && failed.length === 1 && passed.length >= repeats, failed, passed };
  });
}

/**
 * Runs each suite that failed again, alone, until each test that failed has failed again, or has passed often enough.
 * All of the suite, since its tests may build on another. A proof runs again once, to tell whether its counterexample
 * shows again.
 * @param {SuiteResult[]} suites
 * @returns {Promise<{ attempts: Attempt[], isProof: boolean }[]>}
 */
export async function repeatFailed(suites) {
  const failed = suites.filter(({ failures }) => failures.length > 0);
  const proofs = readProofs();
  const untilMs = Math.min(performance.now() + repeatTimeoutMs, runTimeoutMs);
  const repeated = [];
  for (const first of failed) {
    const { project, suite, failures } = first;
    const attempts = [/** @type {Attempt} */ (first)];
    const isProof = suite in proofs;
    const times = failed.length > suitesMax ? 0 : isProof ? 1 : repeats;
    const isOpen = () => failures.some(({ test }) => attempts.filter(isFailedIn(test)).length < 2);
    while (attempts.length <= times && performance.now() < untilMs && isOpen()) {
      const args = ['--runTestsByPath', suite, '--selectProjects', project];
      const { suites, problem, output } = await runJest(args, { untilMs, isQuiet: true });
      const again = suites[0] ?? { ...first, passed: [], failures: [] };
      const all = problem === undefined ? again.failures : [...again.failures, { test: '', message: problem }];
      attempts.push({ ...again, failures: all, output });
      console.log(`again, alone: ${project} ${suite} ${all.length > 0 ? 'FAILED' : 'passed'}`);
    }
    repeated.push({ attempts, isProof });
  }
  return repeated;
}
