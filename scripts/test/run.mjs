import { runJest } from '../jest.mjs';
import { toFailure } from './summary.mjs';
import { judge, repeatFailed } from './verdicts.mjs';

/** @import { SuiteResult } from './reporter.mjs' @import { Attempt, Verdict } from './verdicts.mjs' */

/**
 * @typedef {{ title: string, message: string, command?: string }} Failure The command repeats it.
 * @typedef {ReturnType<typeof newRun>} Run
 */

/** What is known so far. `isStopped`: nothing more begins, since it could not run or its verdict would not matter. */
export const newRun = () => ({
  counts: { passed: 0, failed: 0, skipped: 0 },
  failures: /** @type {Failure[]} */ ([]),
  flaky: /** @type {{ suite: SuiteResult, verdict: Verdict }[]} */ ([]),
  suites: /** @type {SuiteResult[]} */ ([]),
  isStopped: false,
});

/** @param {Run} run @param {Failure} failure */
export function fail(run, failure) {
  run.counts.failed++;
  run.failures.push(failure);
}

/**
 * One step counts as one test, which passes or fails with a message. Resolves with whether it passed.
 * @param {Run} run @param {string} name @param {() => unknown} work
 */
export async function step(run, name, work) {
  console.log(`── ${name}`);
  const beganMs = performance.now();
  try {
    await work();
    run.counts.passed++;
    console.log(`${name}: passed (${((performance.now() - beganMs) / 1000).toFixed(1)} s)`);
    return true;
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    fail(run, { title: name, message });
    console.log(`${name}: FAILED\n${message}`);
    return false;
  }
}

/**
 * Adds what several runs of a suite say about its tests: a flaky one is neither passed nor failed.
 * @param {Run} run
 * @param {Attempt[]} attempts first the one whose tests that passed are counted already
 * @param {boolean} isProof
 */
export function addVerdicts(run, attempts, isProof) {
  const [suite] = attempts;
  if (!suite) return;
  for (const verdict of judge(attempts, isProof)) {
    const { test, isFlaky, failed } = verdict;
    if (test !== '' && verdict.passed.includes(suite)) run.counts.passed--;
    if (isFlaky) {
      run.flaky.push({ suite, verdict });
      continue;
    }
    const again = attempts.length > 1 ? ` (failed in ${failed.length} of ${attempts.length} runs with this seed)` : '';
    const message = failed[0]?.failures.find((failure) => failure.test === test)?.message ?? '';
    const failure = toFailure(suite, test, message);
    fail(run, { ...failure, title: `${failure.title}${again}` });
  }
}

/**
 * Runs suites by jest. Each test counts, and those of the front door twice where they run on a stack too; what fails is
 * repeated.
 * @param {Run} run @param {string} name
 * @param {string[]} args of jest
 * @param {AbortSignal} [signal] ends it; nothing is repeated then
 */
export async function runSuites(run, name, args, signal) {
  console.log(`\n── ${name}`);
  const { suites, problem } = await runJest(args, { signal });
  run.suites.push(...suites);
  run.counts.passed += suites.reduce((sum, suite) => sum + suite.passed.length, 0);
  run.counts.skipped += suites.reduce((sum, suite) => sum + suite.skipped, 0);
  if (problem !== undefined && !signal?.aborted) {
    console.log(`jest: FAILED, ${problem}`);
    fail(run, { title: `jest (${name})`, message: problem });
  }
  const judged = await (signal?.aborted
    ? suites.map((suite) => ({ attempts: [suite], isProof: false }))
    : repeatFailed(suites));
  for (const { attempts, isProof } of judged) addVerdicts(run, attempts, isProof);
  return suites;
}
