import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { addToHistory, appendRecord, keyOf } from './history.mjs';
import { expectedMs, identify } from './order.mjs';

/**
 * @import { AggregatedResult, Test, TestResult } from '@jest/test-result'
 * @import { Config } from '@jest/types'
 * @typedef {ReturnType<typeof toSuiteResult>} SuiteResult
 */

/**
 * Holds the file to which each result is appended as a line. When the last suite has ended there is one with `.end`
 * beside it.
 */
export const reportVariable = 'GRANARY_TEST_REPORT';

const root = path.dirname(path.dirname(import.meta.dirname));
const minutes = (/** @type {number} */ ms) => (ms / 60_000).toFixed(1);

/** `services/data/test/views.test.ts` is `data/views`. @param {string} suite */
export const shortName = (suite) => suite.replace(/^(services|deploy)\/(e2e\/)?|(test|src)\/|\.test\.ts$/g, '');

/** A stack without the lines of packages, such as jest, and of this runner. @param {string} text */
const ownLines = (text) => text.replace(/^ +at (.*(node_modules|suite-runner)|new Promise ).*\n?/gm, '');

/**
 * What a suite printed, each text with the place that printed it. @param {NonNullable<TestResult['console']>} entries
 */
function describeConsole(entries) {
  const texts = entries.map(({ type, message, origin }) => {
    const place =
      ownLines(origin)
        .split('\n')
        .find((line) => line.includes(root)) ?? '';
    return `  console.${type} ${place.replace(`${root}/`, '').trim()}\n${message.replace(/^/gm, '    ')}\n`;
  });
  return texts.join('\n');
}

/**
 * What the runner is told about a suite: full names of tests that passed, and of those that failed, empty where the
 * suite itself failed, since it did not load or a hook around its tests failed; and what it printed.
 * @param {Test} test @param {TestResult & { cpuMs?: number }} result
 */
function toSuiteResult(test, result) {
  const failed = result.testResults.filter((each) => each.status === 'failed');
  const failures = failed.map(({ fullName, failureMessages }) => ({
    test: fullName,
    message: failureMessages.join('\n'),
  }));
  const ofSuite = result.testExecError !== undefined || (failed.length === 0 && Boolean(result.failureMessage));
  if (ofSuite) failures.push({ test: '', message: result.failureMessage ?? '' });
  return {
    ...identify(test),
    wallMs: result.perfStats.runtime,
    cpuMs: result.cpuMs,
    passed: result.testResults.filter((each) => each.status === 'passed').map((each) => each.fullName),
    skipped: result.numPendingTests + result.numTodoTests,
    failures: failures.map((each) => ({ ...each, message: ownLines(each.message) })),
    console: describeConsole(result.console ?? []),
  };
}

/**
 * Prints a line for each suite as it ends, with what is left, and each failure in full; tells the runner, and the
 * history.
 */
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
    const { wallMs, cpuMs, failures } = suite;
    expectedMs.delete(keyOf(suite));
    this.#print(suite, result, all);
    appendRecord(this.#report, suite);
    addToHistory({ ...identify(test), hasFailed: failures.length > 0, wallMs, cpuMs });
  }

  /** @param {SuiteResult} suite @param {TestResult} result @param {AggregatedResult} all */
  #print(suite, result, all) {
    const ended = all.numPassedTestSuites + all.numFailedTestSuites + all.numPendingTestSuites;
    const expected = [...expectedMs.values()];
    const leftMs = Math.max(0, ...expected, expected.reduce((sum, ms) => sum + ms, 0) / this.#config.maxWorkers);
    const total = String(all.numTotalTestSuites);
    const counted = `${String(ended).padStart(total.length)}/${total}`;
    const time = `${minutes(performance.now() - this.#beganMs)} min, ${minutes(leftMs)} left`;
    const outcome = suite.failures.length > 0 ? ' FAILED' : result.skipped ? ' skipped' : '';
    const took = `${(suite.wallMs / 1000).toFixed(1)} s`;
    console.log(`[ ${counted}  ${time} ] ${suite.project} ${shortName(suite.suite)} ${took}${outcome}`);
    // jest sets it where there is one suite only, whose output it does not hold back.
    if (this.#config.verbose) for (const each of result.testResults) console.log(`  ${each.status}  ${each.fullName}`);
    else if (suite.console !== '') console.log(`\n${suite.console}`);
    if (result.failureMessage) console.log(`\n${ownLines(result.failureMessage)}`);
  }

  onRunComplete() {
    writeFileSync(`${this.#report}.end`, '');
  }
}
