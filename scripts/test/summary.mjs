// @ts-check
import { budgetOf } from './order.mjs';
import { processorMs } from './suite-runner.mjs';
import { shortName } from './reporter.mjs';

/** @import { Failure, Flaky, Run } from './run.mjs' */

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
const indent = (text, lines = Infinity) =>
  text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .slice(0, lines)
    .map((line) => `    ${line}`)
    .join('\n');

/** @param {Failure} failure */
function describeFailure({ title, message, command }) {
  return [`- ${title}`, indent(message, messageLinesShown), ...(command === undefined ? [] : [`  ${command}`])].join(
    '\n',
  );
}

/** Both outputs, since the difference between them is what there is to go by. @param {Flaky} flaky */
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
    const took = `${(suite.wallMs / 1000).toFixed(1)} s`.padStart(9);
    console.log(
      `${took}  ${used(suite).toFixed(1).padStart(5)} of ${budgetOf(suite)}  ${suite.project} ${shortName(suite.suite)}`,
    );
  }
  for (const suite of suites.filter((each) => used(each) > 2 * budgetOf(each) && budgetOf(each) > 0)) {
    const text = `${used(suite).toFixed(1)} core-seconds, more than twice its budget of ${budgetOf(suite)}`;
    console.log(`WARNING: ${suite.project} ${suite.suite} took ${text} (services/test-budgets.json).`);
  }
}

/** @param {Run} run @param {boolean} isTolerated whether the flaky tests are not too many */
function printSummary({ suites, flaky, failures }, isTolerated) {
  const { GRANARY_TEST_SLOWNESS: slowness = 'an unknown number of', GRANARY_TEST_PROCESSOR: processor = '1' } =
    process.env;
  if (suites.length > 0) printSuites(suites, Number(processor));
  const usedMs = processorMs();
  if (usedMs !== undefined) {
    const coreS = (usedMs / 1000 / Number(processor)).toFixed(0);
    const wall = `${(performance.now() / 60_000).toFixed(1)} minutes`;
    console.log(
      `\nIt took ${wall} and ${(usedMs / 1000).toFixed(0)} s of processor time, ${coreS} s on the reference machine.`,
    );
  }
  console.log(`This machine was ${slowness} times as slow as the one for which the limits of the tests are written.`);
  console.log(`Seed: ${process.env.GRANARY_TEST_SEED ?? 'none'}`);
  for (const each of flaky) console.log(`\n${describeFlaky(each)}`);
  const all = isTolerated ? failures : [...failures, ...flaky.map((each) => toFailure(each))];
  if (all.length > 0) console.log(`\nFailed:\n${all.map(describeFailure).join('\n')}`);
  console.log('');
}

/** @param {Flaky} flaky @returns {Failure} */
function toFailure({ suite, verdict: { test } }) {
  return {
    title: `${suite.project} ${suite.suite}: ${test}`,
    message: 'It is flaky: see above.',
    command: commandOf(suite, test),
  };
}

/**
 * Prints the end of a run, whose last line are the counts, and sets the exit code. More flaky tests than a run may have count as
 * failed.
 * @param {Run} run
 */
export function finish(run) {
  const isTolerated = run.flaky.length <= flakyMax;
  if (!isTolerated) run.counts.failed += run.flaky.length;
  printSummary(run, isTolerated);
  const { passed, failed, skipped } = run.counts;
  console.log(
    `flaky: ${run.flaky.length}${isTolerated ? '' : `, more than ${flakyMax}, so that they count as failed`}`,
  );
  console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
  process.exitCode = failed > 0 ? 1 : 0;
}
