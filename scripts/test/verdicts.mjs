// @ts-check
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { runJest, runTimeoutMs } from '../jest.mjs';

/** @import { SuiteResult } from './reporter.mjs' */

/**
 * @typedef {SuiteResult & { output?: string }} Attempt A run of a suite; one that was repeated has the output of jest.
 * @typedef {object} Verdict About a test that failed once at least, or about the suite itself, whose name is empty.
 * @property {string} test
 * @property {boolean} isFlaky
 * @property {Attempt[]} failed
 * @property {Attempt[]} passed
 */

const root = path.dirname(path.dirname(import.meta.dirname));
/** How often a test that failed has to pass, so that it is not failed but flaky. */
export const repeats = 3;
/** More suites than these fail by one fault, and there is no use in running each of them again. */
const suitesMax = 10;
/** For all that is repeated after a pass. What was not repeated in it counts as failed. */
const repeatTimeoutMs = 12 * 60_000;

/**
 * The suites of generated cases, each with the number of shards, of two minutes each, that it takes at its full size, and whether
 * it guards money or what was acknowledged.
 * @returns {Record<string, { shards: number, isFirst?: boolean }>}
 */
export const readProofs = () => JSON.parse(readFileSync(path.join(root, 'services/proofs.json'), 'utf8'));

/** @param {Attempt} attempt @param {string} test */
function hasPassed({ passed, failures }, test) {
  return test === '' ? failures.every((failure) => failure.test !== '') : passed.includes(test);
}

/** @param {Attempt} attempt @param {string} test */
const hasFailed = ({ failures }, test) => failures.some((failure) => failure.test === test);

/**
 * What several runs of one suite with the same seed say about each of its tests that failed in one of them. A counterexample that
 * generated cases have found is one, however seldom it shows.
 * @param {Attempt[]} attempts
 * @param {boolean} isProof
 * @returns {Verdict[]}
 */
export function judge(attempts, isProof) {
  const tests = new Set(attempts.flatMap(({ failures }) => failures.map(({ test }) => test)));
  return [...tests].map((test) => {
    const failed = attempts.filter((attempt) => hasFailed(attempt, test));
    const passed = attempts.filter((attempt) => hasPassed(attempt, test));
    return { test, isFlaky: !isProof && failed.length === 1 && passed.length >= repeats, failed, passed };
  });
}

/**
 * Runs a suite again, alone, until `isEnough` of its attempts or `times` times. All of it, since its tests may build on another.
 * @param {SuiteResult} first
 * @param {{ times: number, untilMs: number, isEnough?: (attempts: Attempt[]) => boolean, signal?: AbortSignal }} options
 * @returns {Promise<Attempt[]>} the first one included
 */
export async function repeat(first, { times, untilMs, isEnough = () => false, signal }) {
  const attempts = [/** @type {Attempt} */ (first)];
  const { project, suite } = first;
  while (attempts.length <= times && performance.now() < untilMs && !isEnough(attempts)) {
    const args = ['--runTestsByPath', suite, '--selectProjects', project];
    const { suites, problem, output } = await runJest(args, { untilMs, signal, isQuiet: true });
    const result = suites[0] ?? { ...first, passed: [], failures: [{ test: '', message: 'It did not run.' }] };
    const failures = problem === undefined ? result.failures : [...result.failures, { test: '', message: problem }];
    attempts.push({ ...result, failures, output });
    console.log(`again, alone: ${project} ${suite} ${failures.length > 0 ? 'FAILED' : 'passed'}`);
  }
  return attempts;
}

/**
 * Repeats each suite that failed, and judges its tests. A proof is repeated once, to tell whether its counterexample shows again.
 * @param {SuiteResult[]} suites
 * @returns {Promise<{ suite: SuiteResult, attempts: Attempt[], isProof: boolean }[]>}
 */
export async function repeatFailed(suites) {
  const failed = suites.filter(({ failures }) => failures.length > 0);
  const proofs = readProofs();
  const untilMs = Math.min(performance.now() + repeatTimeoutMs, runTimeoutMs);
  const judged = [];
  for (const suite of failed) {
    const isProof = suite.suite in proofs;
    const isEnough = (/** @type {Attempt[]} */ attempts) =>
      suite.failures.every(({ test }) => attempts.filter((attempt) => !hasPassed(attempt, test)).length > 1);
    const times = failed.length > suitesMax ? 0 : isProof ? 1 : repeats;
    judged.push({ suite, attempts: await repeat(suite, { times, untilMs, isEnough }), isProof });
  }
  return judged;
}
