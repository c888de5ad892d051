// @ts-check
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { addToHistory, appendRecord, keyOf } from './history.mjs';
import { plan } from './order.mjs';

/**
 * @import { AggregatedResult, Test, TestResult } from '@jest/test-result'
 * @import { Config } from '@jest/types'
 */

/**
 * @typedef {object} SuiteResult What the runner is told about a suite.
 * @property {string} project
 * @property {string} suite its path from the root of the repository
 * @property {number} wallMs
 * @property {number | undefined} cpuMs
 * @property {string[]} passed full names of tests
 * @property {number} skipped
 * @property {{ test: string, message: string }[]} failures the name is empty where the suite itself failed: it did not load,
 *   or a hook around its tests failed
 * @property {string} console what it printed
 */

/** Holds the file to which each result is appended as a line. When the last suite has ended there is one with `.end` beside it. */
export const reportVariable = 'GRANARY_TEST_REPORT';

const root = path.dirname(path.dirname(import.meta.dirname));
const minutes = (/** @type {number} */ ms) => (ms / 60_000).toFixed(1);

/** `services/data/test/views.test.ts` is `data/views`. @param {string} suite */
export const shortName = (suite) =>
  suite
    .replace(/^services\//, '')
    .replace(/^(e2e\/)/, '')
    .replace(/\/(test|src)\//, '/')
    .replace(/\.test\.ts$/, '');

/** A stack without the lines of packages, such as jest. @param {string} text */
const withoutPackages = (text) => text.replace(/^ +at .*node_modules.*\n?|^ +at new Promise .*\n?/gm, '');

/**
 * What a suite printed, each text with the place in the suite or the sources that printed it.
 * @param {NonNullable<TestResult['console']>} entries
 */
function describeConsole(entries) {
  const texts = entries.map(({ type, message, origin }) => {
    const place = origin.split('\n').find((line) => line.includes(root) && !line.includes('node_modules')) ?? '';
    return `  console.${type}${place.replace(`${root}/`, '').replace(/^\s*at/, ' at')}\n${message.replace(/^/gm, '    ')}\n`;
  });
  return texts.join('\n');
}

/** @param {Test} test @param {TestResult & { cpuMs?: number }} result @returns {SuiteResult} */
function toSuiteResult(test, result) {
  const failed = result.testResults.filter((each) => each.status === 'failed');
  const failures = failed.map((each) => ({
    test: each.fullName,
    message: withoutPackages(each.failureMessages.join('\n')),
  }));
  const ofSuite = result.testExecError !== undefined || (failed.length === 0 && Boolean(result.failureMessage));
  return {
    project: test.context.config.displayName?.name ?? '',
    suite: path.relative(root, test.path),
    wallMs: result.perfStats.runtime,
    cpuMs: result.cpuMs,
    passed: result.testResults.filter((each) => each.status === 'passed').map((each) => each.fullName),
    skipped: result.numPendingTests + result.numTodoTests,
    failures: ofSuite ? [...failures, { test: '', message: result.failureMessage ?? '' }] : failures,
    console: result.console ? describeConsole(result.console) : '',
  };
}

/** Prints a line for each suite as it ends, with what is left, and each failure in full; tells the runner, and the history. */
export default class SuiteReporter {
  #beganMs = performance.now();
  #report = process.env[reportVariable] ?? '';
  #config;

  /** @param {Config.GlobalConfig} config */
  constructor(config) {
    this.#config = config;
  }

  /** @param {Test} test @param {TestResult} result @param {AggregatedResult} all */
  onTestResult(test, result, all) {
    const suite = toSuiteResult(test, result);
    plan.expectedMs.delete(keyOf(suite));
    this.#print(suite, result, all);
    appendRecord(this.#report, suite);
    addToHistory({
      project: suite.project,
      suite: suite.suite,
      outcome: suite.failures.length > 0 ? 'failed' : 'passed',
      wallMs: suite.wallMs,
      cpuMs: suite.cpuMs,
      slowness: Number(process.env.GRANARY_TEST_SLOWNESS ?? 1),
      seed: process.env.GRANARY_TEST_SEED ?? '',
      commit: process.env.GRANARY_TEST_COMMIT ?? '',
    });
  }

  /** @param {SuiteResult} suite @param {TestResult} result @param {AggregatedResult} all */
  #print(suite, result, all) {
    const ended = all.numPassedTestSuites + all.numFailedTestSuites + all.numPendingTestSuites;
    const expected = [...plan.expectedMs.values()];
    const leftMs = Math.max(0, ...expected, expected.reduce((sum, ms) => sum + ms, 0) / this.#config.maxWorkers);
    const total = String(all.numTotalTestSuites);
    const counted = `${String(ended).padStart(total.length)}/${total}`;
    const time = `${minutes(performance.now() - this.#beganMs)} min, ${minutes(leftMs)} left`;
    const outcome = suite.failures.length > 0 ? ' FAILED' : result.skipped ? ' skipped' : '';
    const took = `${(suite.wallMs / 1000).toFixed(1)} s`;
    console.log(`[ ${counted}  ${time} ] ${suite.project} ${shortName(suite.suite)} ${took}${outcome}`);
    // jest sets it where there is one suite only, whose output it does not hold back.
    if (this.#config.verbose) for (const line of result.testResults.map(describeTest)) console.log(line);
    else if (suite.console !== '') console.log(`\n${suite.console}`);
    if (result.failureMessage) console.log(`\n${result.failureMessage}`);
  }

  onRunComplete() {
    writeFileSync(`${this.#report}.end`, '');
  }
}

/** @param {TestResult['testResults'][number]} test */
function describeTest({ status, fullName, duration }) {
  const mark = { passed: '✓', failed: '✕' }[/** @type {string} */ (status)] ?? '○';
  return `  ${mark} ${fullName}${typeof duration === 'number' ? ` (${duration} ms)` : ''}`;
}
