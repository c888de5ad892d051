import path from 'node:path';
import { build } from '../build.mjs';
import { installWhenNeeded } from '../install.mjs';
import { installAllNodes } from '../node.mjs';
import { generateTypes } from '../types.mjs';
import { askGit, findChanges } from './changes.mjs';
import { boundHistory, historyVariable } from './history.mjs';
import { changedVariable } from './order.mjs';
import { step } from './run.mjs';

/** @import { Changes } from './changes.mjs' @import { Run } from './run.mjs' */

const root = path.dirname(path.dirname(import.meta.dirname));

/**
 * Installs Kafka, MinIO, nginx, Chromium, the Python tools, those for charts, the release before, and the releases of
 * Node that the client library is for. If a tool of the machine is missing, the suites that need them are skipped, or
 * fail with REQUIRE_STACK=1.
 * @param {{ cluster: boolean }} options `cluster` adds what a cluster needs, which its tests otherwise install
 * themselves
 */
async function installStack(options) {
  const { installParts } = await import('@granary/stack/install');
  await installAllNodes();
  const missing = Object.entries(await installParts(console.log, options));
  if (missing.length === 0) return;
  if (process.env.REQUIRE_STACK === '1') throw new Error(missing.map(([, reason]) => reason).join('\n'));
  for (const [part, reason] of missing) {
    const skipped = ['python', 'nginx', 'chromium', 'helm', 'release', 'cluster'].includes(part)
      ? 'ITS TESTS ARE'
      : 'ITS TESTS, AND ALL TESTS ON A STACK, ARE';
    console.log(`${skipped} SKIPPED: ${reason}`);
  }
}

/** Tells all processes of the run what they have in common, by their environment. */
async function describeRun() {
  const { commitSeed, seedVariable } = await import('@granary/testing/seeds');
  const { measureProcessor, measureSlowness, slownessVariable } = await import('@granary/testing/speed');
  const { cacheFolder } = await import('@granary/stack/tools/cache');
  const changes = findChanges();
  process.env[seedVariable] ??= commitSeed();
  process.env[slownessVariable] ??= measureSlowness().toFixed(1);
  process.env.GRANARY_TEST_PROCESSOR ??= measureProcessor().toFixed(2);
  process.env.GRANARY_TEST_COMMIT ??= askGit('rev-parse', 'HEAD') ?? '';
  process.env[historyVariable] ??= path.join(await cacheFolder(), 'tests');
  boundHistory();
  process.env[changedVariable] = JSON.stringify(changes.suites);
  console.log(`Seed: ${process.env[seedVariable]}`);
  const since = changes.base === undefined ? 'unknown: there is no history' : `that since ${changes.base.slice(0, 10)}`;
  console.log(
    `What changed is ${since}: ${changes.files.length} files, ${changes.suites.length} new or changed suites.`,
  );
  return changes;
}

/**
 * Installs and builds what tests need, and prints how long it took. Without it nothing else can run.
 * @param {Run} run @param {{ needsStack: boolean, needsCluster: boolean }} options
 * @returns {Promise<Changes>}
 */
export async function setUp(run, { needsStack, needsCluster }) {
  const beganMs = performance.now();
  const nothing = { base: undefined, files: [], suites: [] };
  run.isStopped = true;
  if (!(await step(run, 'packages', () => installWhenNeeded(root, console.log)))) return nothing;
  if (!(await step(run, 'build', build))) return nothing;
  // For the checks, which run side by side.
  if (!(await step(run, 'types of the protos', generateTypes))) return nothing;
  const parts = 'Kafka, MinIO, nginx, Chromium, Python and chart tools, the release before';
  if (needsStack && !(await step(run, parts, () => installStack({ cluster: needsCluster })))) return nothing;
  console.log(`Set up in ${((performance.now() - beganMs) / 1000).toFixed(0)} s.\n`);
  run.isStopped = false;
  return describeRun();
}
