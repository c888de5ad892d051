import { fork } from 'node:child_process';
import path from 'node:path';
import { forwardSignals, runChild } from '../child.mjs';
import { runTimeoutMs } from '../jest.mjs';
import { smoke } from '../smoke.mjs';
import { repeatChanged } from './changed.mjs';
import { startChecks } from './checks.mjs';
import { fail, runSuites, step } from './run.mjs';

/** @import { Changes } from './changes.mjs' @import { Run } from './run.mjs' */

const root = path.dirname(path.dirname(import.meta.dirname));
export const testProjects = ['unit', 'service', 'front', 'stack', 'chart'];
export const systemProjects = ['system', 'clients'];
/** They measure what they do to others, so that nothing may run beside them. */
const attacks = ['--selectProjects', 'attacks', '--runInBand'];
/**
 * What the tests in a cluster may take at least, even if jest has used up its time: with it CI ends within its limit.
 */
const clusterMs = 12 * 60_000;
/** The child ends itself, with a report, that long before this process kills it. */
const clusterEndMs = 3 * 60_000;
const clusterMinutesMax = 30;

/** All that `npm test` runs. @param {Run} run @param {{ isCached: boolean, changes: Changes }} options */
export async function runTests(run, { isCached, changes }) {
  const checks = startChecks(run, { isCached });
  await checks.lastBegan;
  // The suites of the front door that run on a stack too leave out what differs least from that.
  process.env.GRANARY_TEST_PASSES = 'both';
  const args = ['--selectProjects', ...testProjects];
  const suites = run.isStopped ? [] : await runSuites(run, 'suites', args, checks.signal);
  await checks.ended;
  if (!run.isStopped) await repeatChanged(run, suites, changes);
  if (checks.signal.aborted) console.log(`Stopped, since ${checks.signal.reason}: mend that first.`);
}

/**
 * Compiles Kubernetes beside suites, which leave the processor idle while they wait, at the lowest priority. Resolves
 * once that has ended, however it has: the tests in the cluster compile what is missing, and say what is wrong. It ends
 * with this process.
 * @param {AbortSignal} signal ends it
 * @returns {Promise<void>}
 */
export async function compileKubernetes(signal) {
  if (process.getuid?.() !== 0) return;
  const { cacheFolder } = await import('@granary/stack/tools/cache');
  const env = { ...process.env, KUBE_HOME: path.join(await cacheFolder(), 'kube') };
  const build = ['setpriv', '--pdeathsig', 'KILL', 'bash', path.join(root, 'deploy/kube/build.sh')];
  await runChild('nice', ['-n', '19', ...build], { env, signal }).catch(() => undefined);
}

/**
 * All that `npm run test:system` runs.
 * @param {Run} run @param {Promise<void>} compiled the result of `compileKubernetes`
 */
export async function runSystemTests(run, compiled) {
  await runSuites(run, 'whole processes and generated clients', ['--selectProjects', ...systemProjects]);
  await compiled;
  await runSuites(run, 'attacks', attacks);
  await step(run, 'npm start in a clean directory', () => smoke(root));
  await runCluster(run);
}

/**
 * Runs the suites that a developer names, by arguments of jest: paths, which come first, then options.
 * @param {Run} run @param {string[]} args
 * @param {string[]} projects those of the command, for arguments that name no path and no project
 */
export async function runChosen(run, args, projects) {
  const namesSuites = args.includes('--selectProjects') || (args[0] !== undefined && !args[0].startsWith('-'));
  const isAttack = args.some((arg) => arg.includes('attacks'));
  const all = isAttack ? ['--runInBand'] : ['--ignoreProjects', 'attacks'];
  await runSuites(run, 'jest', [...args, ...(namesSuites ? all : ['--selectProjects', ...projects])]);
}

/**
 * Proves the chart in a cluster, by a process of its own, whose end ends the cluster. Each of its steps counts as a
 * test. May take longer than the time limit of jest by a few minutes.
 * @param {Run} run
 */
async function runCluster(run) {
  const name = 'the chart in a real Kubernetes';
  console.log(`\n── ${name}`);
  const leftMs = Math.min(runTimeoutMs + clusterMs - performance.now(), clusterMinutesMax * 60_000);
  const minutes = ((leftMs - clusterEndMs) / 60_000).toFixed(1);
  const child = fork(path.join(root, 'scripts/kube.mjs'), ['--short', `--minutes=${minutes}`], { cwd: root });
  /** @type {{ passed?: number, skipped?: number, failed?: number, failure?: string }} */
  let ran = {};
  child.on('message', (message) => (ran = Object(message)));
  const deadline = setTimeout(() => child.kill('SIGKILL'), leftMs);
  const ended = forwardSignals(child);
  const code = await new Promise((resolve) => child.once('exit', resolve));
  clearTimeout(deadline);
  ended();
  run.counts.passed += ran.passed ?? 0;
  run.counts.skipped += ran.skipped ?? 0;
  const reason = code === null ? 'it did not end in time' : `exit code ${code}`;
  if (ran.failed || code !== 0) fail(run, { title: name, message: ran.failure ?? reason });
}
