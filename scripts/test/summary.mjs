import { budgetOf } from './order.mjs';
import { processorMs } from './suite-runner.mjs';
import { shortName } from './reporter.mjs';

/** @import { SuiteResult } from './reporter.mjs' @import { Failure, Run } from './run.mjs' */

const slowestShown = 15;
/** Of the message of a failure, which was printed in full when it happened. */
const messageLinesShown = 15;

/** Beyond it a run is red: so many are no coincidence. */
const flakyMax = 2;

/** @param {string} text */
const quote = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/**
 * The command that repeats a test, or a whole suite, exactly.
 * @param {{ project: string, suite: string }} suite
 * @param {string} test full name, empty for the suite
 * @param {NodeJS.ProcessEnv} [env] that of the run
 */
export function commandOf({ project, suite }, test, env = process.env) {
  const long = env.TEST_LONG === '1' ? `TEST_LONG=1 GRANARY_TEST_SHARDS=${env.GRANARY_TEST_SHARDS ?? 1} ` : '';
  const title = test === '' ? '' : ` -t ${quote(`^${test.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')}$`)}`;
  return `${long}npm test -- ${suite} --selectProjects ${project} --seed ${quote(env.GRANARY_TEST_SEED ?? '')}${title}`;
}

/** @param {string} text @param {number} [lines] */
function indent(text, lines = Infinity) {
  const shown = text.split('\n').filter((line) => line.trim() !== '');
  return shown
    .slice(0, lines)
    .map((line) => `    ${line}`)
    .join('\n');
}

/** @param {Failure} failure */
const describeFailure = ({ title, message, command }) =>
  `- ${title}\n${indent(message, messageLinesShown)}${command === undefined ? '' : `\n  ${command}`}`;

/** @param {SuiteResult} suite @param {string} test @returns {Failure} */
export const toFailure = (suite, test, message = 'It is flaky: see above.') => ({
  title: `${suite.project} ${suite.suite}: ${test || 'the suite itself'}`,
  message,
  command: commandOf(suite, test),
});

/** Both outputs, since the difference between them is what there is to go by. @param {Run['flaky'][number]} flaky */
function describeFlaky({ suite, verdict: { test, failed, passed } }) {
  const failure = failed[0]?.failures.find((each) => each.test === test);
  return [
    `FLAKY: ${suite.project} ${suite.suite}: ${test || 'the suite itself'}`,
    `  failed once, and passed ${passed.length} times with the same seed. Where it failed:`,
    indent(`${failure?.message ?? ''}\n${failed[0]?.output ?? failed[0]?.console ?? ''}`),
    '  Where it passed:',
    indent(passed.at(-1)?.output ?? passed.at(-1)?.console ?? ''),
    `  ${commandOf(suite, test)}`,
  ].join('\n');
}

/** @param {Run['suites']} suites @param {number} processor its time in relation to the reference machine */
function printSuites(suites, processor) {
  const slowest = [...suites].sort((a, b) => b.wallMs - a.wallMs).slice(0, slowestShown);
  const used = (/** @type {{ cpuMs: number | undefined }} */ { cpuMs = 0 }) => cpuMs / 1000 / processor;
  console.log(`\nThe slowest suites, their own processor time on the reference machine, and its budget:`);
  for (const suite of slowest) {
    const took = `${(suite.wallMs / 1000).toFixed(1)} s`.padStart(9) + used(suite).toFixed(1).padStart(7);
    console.log(`${took} of ${budgetOf(suite)}  ${suite.project} ${shortName(suite.suite)}`);
  }
  for (const suite of suites.filter((each) => used(each) > 2 * budgetOf(each) && budgetOf(each) > 0)) {
    const text = `${used(suite).toFixed(1)} core-seconds, more than twice its budget of ${budgetOf(suite)}`;
    console.log(`WARNING: ${suite.project} ${suite.suite} took ${text} (services/test-budgets.json).`);
  }
}

/**
 * Prints the end of a run, whose last line are the counts, and sets the exit code. More flaky tests than a run may have
 * count as failed.
 * @param {Run} run
 */
export function finish({ counts, suites, flaky, failures }) {
  const { GRANARY_TEST_SLOWNESS: slowness, GRANARY_TEST_PROCESSOR: processor = '1' } = process.env;
  if (suites.length > 0) printSuites(suites, Number(processor));
  const usedS = (processorMs() ?? 0) / 1000;
  const onReference = `${usedS.toFixed(0)} s of processor time, ${(usedS / Number(processor)).toFixed(0)} s on the reference machine`;
  console.log(`\nIt took ${(performance.now() / 60_000).toFixed(1)} minutes, and ${onReference}.`);
  const speed = `${slowness ?? 'an unknown number of'} times as slow as the one for which limits of tests are written`;
  console.log(`This machine was ${speed}.\nSeed: ${process.env.GRANARY_TEST_SEED ?? 'none'}`);
  for (const each of flaky) console.log(`\n${describeFlaky(each)}`);
  const isTolerated = flaky.length <= flakyMax;
  const all = isTolerated
    ? failures
    : [...failures, ...flaky.map(({ suite, verdict: { test } }) => toFailure(suite, test))];
  if (all.length > 0) console.log(`\nFailed:\n${all.map(describeFailure).join('\n')}`);
  const failed = counts.failed + all.length - failures.length;
  console.log(`\nflaky: ${flaky.length}${isTolerated ? '' : `, more than ${flakyMax}, so that they count as failed`}`);
  console.log(`${counts.passed} passed, ${failed} failed, ${counts.skipped} skipped`);
  process.exitCode = failed > 0 ? 1 : 0;
}
