// @ts-check
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { runJest, runTimeoutMs } from '../jest.mjs';
import { keyOf, readHistory } from './history.mjs';
import { budgetOf } from './order.mjs';
import { addVerdicts, runSuites } from './run.mjs';
import { listSuites, projectOf, reachedFrom } from './suites.mjs';
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
/** For the suites of `npm run test:changed`; what they share takes the rest of a minute to start. */
const changedMs = 50_000;
const workers = 2;

/** @param {string[]} paths @param {string[]} projects */
const argsOf = (paths, projects) => ['--runTestsByPath', ...new Set(paths), '--selectProjects', ...new Set(projects)];

/** @param {string} why @param {string[]} names */
const sayLeftOut = (why, names) => names.length > 0 && console.log(`Left out, ${why}: ${names.join(', ')}`);

/**
 * Which of the new and changed suites run again, by lot if they are many: the lot is that of the seed.
 * @param {SuiteResult[]} suites that passed
 */
function chooseRepeated(suites) {
  const lot = (/** @type {SuiteResult} */ suite) =>
    createHash('sha256')
      .update(`${process.env.GRANARY_TEST_SEED} ${keyOf(suite)}`)
      .digest('hex');
  const drawn = [...suites].sort((a, b) => (lot(a) < lot(b) ? -1 : 1)).slice(0, repeatedMax);
  let leftMs = repeatMs.ofAll * workers;
  const chosen = drawn.filter(({ wallMs }) => {
    // One of the runs takes about twice as long.
    const tookMs = wallMs * (repeats + 1);
    if (tookMs > repeatMs.ofOne || tookMs > leftMs) return false;
    leftMs -= tookMs;
    return true;
  });
  sayLeftOut('by lot, or because they take long', suites.filter((each) => !chosen.includes(each)).map(keyOf));
  return chosen;
}

/**
 * Runs the new and changed suites that passed three times more, the last time beside two busy loops: most flaky tests are born with
 * their suite, where who wrote it still knows why.
 * @param {Run} run
 * @param {SuiteResult[]} suites that have run
 * @param {Changes} changes
 */
export async function repeatChanged(run, suites, changes) {
  const passed = suites.filter(({ suite, failures }) => changes.suites.includes(suite) && failures.length === 0);
  if (passed.length === 0) return;
  console.log(`\n── ${passed.length} new or changed suites, ${repeats} times more`);
  const chosen = chooseRepeated(passed);
  const attempts = new Map(chosen.map((suite) => [keyOf(suite), [/** @type {Attempt} */ (suite)]]));
  const untilMs = Math.min(performance.now() + repeatMs.ofAll, runTimeoutMs);
  for (let time = 1; time <= repeats && chosen.length > 0; time++) {
    const loops = time < repeats ? 0 : busyLoops;
    const busy = Array.from({ length: loops }, () => spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }));
    const args = argsOf(
      chosen.map(({ suite }) => suite),
      chosen.map(({ project }) => project),
    );
    const ran = await runJest(args, { untilMs, isQuiet: true });
    for (const loop of busy) loop.kill('SIGKILL');
    for (const suite of ran.suites) attempts.get(keyOf(suite))?.push(suite);
    const failed = ran.suites.filter(({ failures }) => failures.length > 0).map(keyOf);
    console.log(
      `${time} of ${repeats}: ${ran.suites.length - failed.length} passed${failed.map((key) => `, ${key} FAILED`).join('')}`,
    );
  }
  const cut = [...attempts].filter(([, each]) => each.length <= repeats).map(([key]) => key);
  sayLeftOut(`at least once, since there was no time`, cut);
  for (const each of attempts.values()) addVerdicts(run, each, (each[0]?.suite ?? '') in readProofs());
}

/**
 * What `npm run test:changed` runs: suites that import the change, those first that reach what few others reach, then the quick
 * ones, as many as a minute has room for.
 * @param {Run} run
 * @param {Changes} changes
 */
export async function runChanged(run, changes) {
  const history = readHistory();
  const candidates = listSuites()
    .map((suite) => ({ suite, project: projectOf(suite), reached: reachedFrom(suite) }))
    .filter(({ project }) => ['unit', 'service', 'front'].includes(project));
  /** @type {Map<string, number>} */
  const reachedBy = new Map(
    changes.files.map((file) => [file, candidates.filter(({ reached }) => reached.has(file)).length]),
  );
  const related = candidates.flatMap(({ suite, project, reached }) => {
    const files = changes.files.filter((file) => reached.has(file));
    const expectedMs = history.get(keyOf({ suite, project }))?.wallMs ?? budgetOf({ suite, project }) * 1000;
    const fewest = Math.min(...files.map((file) => reachedBy.get(file) ?? Infinity));
    return files.length === 0 ? [] : [{ suite, project, expectedMs, fewest }];
  });
  related.sort((a, b) => a.fewest - b.fewest || a.expectedMs - b.expectedMs);
  let leftMs = changedMs * workers;
  const chosen = related.filter(({ expectedMs }) => (leftMs -= expectedMs) >= 0);
  const isChosen = new Set(chosen);
  if (chosen.length > 0)
    await runSuites(
      run,
      'what imports the change',
      argsOf(
        chosen.map(({ suite }) => suite),
        chosen.map(({ project }) => project),
      ),
    );
  sayLeftOut(
    'since a minute has no room for them',
    related.filter((each) => !isChosen.has(each)).map(({ suite }) => suite),
  );
  sayLeftOut(
    'since no suite imports them',
    [...reachedBy].filter(([, count]) => count === 0).map(([file]) => file),
  );
}
