import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { runJest, runTimeoutMs } from '../jest.mjs';
import { keyOf, readHistory } from './history.mjs';
import { estimateMs } from './order.mjs';
import { addVerdicts, fail, runSuites } from './run.mjs';
import { listSuites, projectOf, reachedFrom } from '../suites.mjs';
import { readProofs, repeats } from './verdicts.mjs';

/**
 * @import { Changes } from './changes.mjs'
 * @import { SuiteResult } from './reporter.mjs'
 * @import { Run } from './run.mjs'
 * @import { Attempt } from './verdicts.mjs'
 */

const repeatedMax = 20;
/** Of one suite, and of all of them, with the run that is slow beside busy processes. */
const repeatMs = { ofOne: 90_000, ofAll: 5 * 60_000 };
const busyLoops = 2;
/** It ends with this process, however that ends. */
const busyLoop = 'const parent = process.ppid; while (process.ppid === parent);';
/** For the suites of `npm run test:changed`; what they share takes the rest of a minute to start. */
const changedMs = 50_000;
const workers = 2;
const namesShown = 20;

/** @param {{ suite: string, project: string }[]} suites */
function argsOf(suites) {
  const projects = new Set(suites.map(({ project }) => project));
  return ['--runTestsByPath', ...new Set(suites.map(({ suite }) => suite)), '--selectProjects', ...projects];
}

/**
 * After a large change most are left out, whose names nobody would read. @param {string} why @param {string[]} names
 */
function sayLeftOut(why, names) {
  const more = names.length > namesShown ? ` and ${names.length - namesShown} more` : '';
  if (names.length > 0) console.log(`Left out, ${why}: ${names.slice(0, namesShown).join(', ')}${more}`);
}

/**
 * As many suites as there is room for, in this order; one that does not fit leaves its place to those behind it.
 * @template {{ ms: number }} Suite
 * @param {Suite[]} suites @param {number} roomMs
 */
function fitting(suites, roomMs) {
  let leftMs = roomMs;
  const chosen = suites.filter(({ ms }) => ms <= leftMs && ((leftMs -= ms), true));
  return { chosen, left: suites.filter((each) => !chosen.includes(each)) };
}

/**
 * Runs the new and changed suites that passed three times more, the last time beside two busy loops: most flaky tests
 * are born with their suite, where who wrote it still knows why.
 * @param {Run} run
 * @param {SuiteResult[]} suites that have run
 * @param {Changes} changes
 */
export async function repeatChanged(run, suites, changes) {
  const passed = suites.filter(({ suite, failures }) => changes.suites.includes(suite) && failures.length === 0);
  if (passed.length === 0) return;
  console.log(`\n── ${passed.length} new or changed suites, ${repeats} times more`);
  const hash = (/** @type {string} */ text) => createHash('sha256').update(text).digest('hex');
  // The lot is that of the seed. One of the runs takes about twice as long.
  const lots = passed.map((suite) => ({ ...suite, lot: hash(`${process.env.GRANARY_TEST_SEED} ${keyOf(suite)}`) }));
  const drawn = lots.sort((a, b) => (a.lot < b.lot ? -1 : 1)).slice(0, repeatedMax);
  const costs = drawn.map((suite) => ({ ...suite, ms: suite.wallMs * (repeats + 1) }));
  const { chosen } = fitting(
    costs.filter(({ ms }) => ms <= repeatMs.ofOne),
    repeatMs.ofAll * workers,
  );
  const keys = new Set(chosen.map(keyOf));
  sayLeftOut(
    'by lot, or because they take long',
    passed.map(keyOf).filter((key) => !keys.has(key)),
  );
  const attempts = new Map(chosen.map((suite) => [keyOf(suite), [/** @type {Attempt} */ (suite)]]));
  const untilMs = Math.min(performance.now() + repeatMs.ofAll, runTimeoutMs);
  for (let time = 1; time <= repeats && chosen.length > 0; time++) {
    const loops = time < repeats ? 0 : busyLoops;
    const busy = Array.from({ length: loops }, () => spawn(process.execPath, ['-e', busyLoop], { stdio: 'ignore' }));
    const ran = await runJest(argsOf(chosen), { untilMs, isQuiet: true });
    for (const loop of busy) loop.kill('SIGKILL');
    for (const suite of ran.suites) attempts.get(keyOf(suite))?.push(suite);
    if (ran.problem !== undefined && performance.now() < untilMs) fail(run, { title: 'jest', message: ran.problem });
    const failed = ran.suites.filter(({ failures }) => failures.length > 0).map(keyOf);
    console.log(`${time} of ${repeats}: ${ran.suites.length - failed.length} passed`);
    for (const key of failed) console.log(`${key} FAILED`);
  }
  const cut = [...attempts].filter(([, each]) => each.length <= repeats).map(([key]) => key);
  sayLeftOut(`at least once, since there was no time`, cut);
  for (const each of attempts.values()) addVerdicts(run, each, (each[0]?.suite ?? '') in readProofs());
}

/**
 * What `npm run test:changed` runs: suites that import the change, those first that reach what few others reach, then
 * the quick ones, as many as a minute has room for.
 * @param {Run} run @param {Changes} changes
 */
export async function runChanged(run, changes) {
  const history = readHistory();
  const suites = listSuites().map((suite) => ({ suite, project: projectOf(suite), reached: reachedFrom(suite) }));
  const candidates = suites.filter(({ project }) => ['unit', 'service', 'front'].includes(project));
  const countOf = (/** @type {string} */ file) => candidates.filter(({ reached }) => reached.has(file)).length;
  const reachedBy = new Map(changes.files.map((file) => [file, countOf(file)]));
  const related = candidates.map((suite) => {
    const counts = changes.files.flatMap((file) => (suite.reached.has(file) ? (reachedBy.get(file) ?? []) : []));
    const ms = estimateMs(suite, history);
    return { ...suite, ms, fewest: Math.min(...counts) };
  });
  const sorted = related.filter(({ fewest }) => fewest < Infinity).sort((a, b) => a.fewest - b.fewest || a.ms - b.ms);
  const { chosen, left } = fitting(sorted, changedMs * workers);
  if (chosen.length > 0) await runSuites(run, 'what imports the change', argsOf(chosen));
  sayLeftOut(
    'since a minute has no room for them',
    left.map(({ suite }) => suite),
  );
  sayLeftOut(
    'since no suite imports them',
    changes.files.filter((file) => reachedBy.get(file) === 0),
  );
}
