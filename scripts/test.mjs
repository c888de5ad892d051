import { fork } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from './build.mjs';
import { forwardSignals, runChild } from './child.mjs';
import { installWhenNeeded } from './install.mjs';
import { runJest, runTimeoutMs } from './jest.mjs';
import { smoke } from './smoke.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const counts = { passed: 0, failed: 0, skipped: 0 };
/** A text for each failure. They are printed last, where they are found although the output before them is long, or cut. */
const failures = [];
/** What the tests in a cluster may take at least, even if jest has used up its time: with it CI ends within its limit. */
const clusterMs = 8 * 60_000;
/** The child ends itself, with a report, that long before this process kills it. */
const clusterEndMs = 3 * 60_000;
const clusterMinutesMax = 30;
const failureLinesShown = 15;

const lastLines = (text) => text.trim().split('\n').slice(-failureLinesShown).join('\n');

/** One step counts as one test: it passes or fails with a text. */
async function step(name, run) {
  console.log(`\n── ${name}`);
  const started = Date.now();
  try {
    await run();
    counts.passed++;
    console.log(`${name}: passed (${((Date.now() - started) / 1000).toFixed(1)} s)`);
  } catch (error) {
    counts.failed++;
    failures.push(`${name}: ${lastLines(error.message)}`);
    console.log(`${name}: FAILED\n${error.message}`);
  }
}

/** Runs a script of Node; its output is shown only when it fails. */
async function script(file, args) {
  const { code, output } = await runChild(process.execPath, [path.join(root, file), ...args], { cwd: root });
  if (code !== 0) throw new Error(output.trim());
}

const tool = (file, args) => script(path.join('node_modules', file), args);

/**
 * Installs Kafka, MinIO, the Python tools, those for charts and the release before. If a tool of the machine is missing, the
 * suites that need them are skipped, or fail with REQUIRE_STACK=1.
 */
async function installStack() {
  const { installParts } = await import(pathToFileURL(path.join(root, 'services/local/dist/stack/install.js')).href);
  const missing = Object.entries(await installParts(console.log));
  if (missing.length === 0) return;
  if (process.env.REQUIRE_STACK === '1') throw new Error(missing.map(([, reason]) => reason).join('\n'));
  for (const [part, reason] of missing) {
    const skipped = ['python', 'helm', 'release'].includes(part)
      ? 'ITS TESTS ARE'
      : 'ITS TESTS, AND ALL TESTS ON A STACK, ARE';
    console.log(`${skipped} SKIPPED: ${reason}`);
  }
}

/**
 * Every test of jest counts, and those of the API twice: its lines show whether a suite ran `embedded` or on a `stack`.
 * The suites that measure the effects of attacks run last, alone.
 */
async function jest(name, args, env = {}) {
  console.log(`\n── ${name}`);
  const ran = await runJest(args, { ...process.env, ...env });
  for (const outcome of Object.keys(counts)) counts[outcome] += ran[outcome];
  failures.push(...ran.failures);
}

/**
 * Proves the chart in a cluster, by a process of its own, whose end ends the cluster. Each of its steps counts as a test. May
 * take longer than the time limit of jest by a few minutes.
 */
async function kubernetes() {
  console.log('\n── the chart in a real Kubernetes');
  const leftMs = Math.min(runTimeoutMs + clusterMs - performance.now(), clusterMinutesMax * 60_000);
  const minutes = ((leftMs - clusterEndMs) / 60_000).toFixed(1);
  const child = fork(path.join(root, 'scripts/test-k8s.mjs'), ['--short', `--minutes=${minutes}`], { cwd: root });
  let ran;
  child.on('message', (message) => (ran = message));
  const deadline = setTimeout(() => child.kill('SIGKILL'), leftMs);
  const ended = forwardSignals(child);
  const code = await new Promise((resolve) => child.once('exit', resolve));
  clearTimeout(deadline);
  ended();
  if (code === null) console.log('FAILED: it did not end in time');
  for (const outcome of Object.keys(counts)) counts[outcome] += ran?.[outcome] ?? 0;
  if (ran?.failure !== undefined) failures.push(ran.failure);
  if (code === 0 || ran?.failed) return;
  counts.failed += 1;
  failures.push(`the chart in a real Kubernetes: ${code === null ? 'it did not end in time' : `exit code ${code}`}`);
}

/** The slowness of this machine relative to the reference; the limits of all tests scale with it. */
async function measureSlowness() {
  const speed = await import(pathToFileURL(path.join(root, 'services/testing/dist/speed.js')).href);
  return (process.env[speed.slownessVariable] = speed.measureSlowness().toFixed(1));
}

const jestArgs = process.argv.slice(2);
await step('install', () => installWhenNeeded(root, console.log));
await step('build', build);
await step('Kafka, MinIO, the Python tools, those for charts and the release before', installStack);
const slowness = await measureSlowness().catch(() => 'an unknown number of');
if (jestArgs.length === 0) {
  await step('lint', () => tool('eslint/bin/eslint.js', ['--max-warnings', '0', '.']));
  await step('format', () => tool('prettier/bin/prettier.cjs', ['--check', '--log-level', 'warn', '.']));
  await step('rooms', () => script('scripts/rooms.mjs', ['--check']));
  await step('types', () => tool('typescript/bin/tsc', ['-p', 'services/tsconfig.json']));
}
if (jestArgs.length > 0) await jest('jest', jestArgs);
else {
  const projects = ['unit', 'service', 'front', 'stack', 'chart', 'system', 'clients'];
  await jest('jest', ['--selectProjects', ...projects], { GRANARY_TEST_PASSES: 'both' });
  await jest('attacks', ['--selectProjects=attacks', '--runInBand']);
  await step('npm start in a clean directory', () => smoke(root));
  await kubernetes();
}

console.log(`\nThis machine was ${slowness} times as slow as the one for which the limits of the tests are written.`);
if (failures.length > 0) console.log(`\nFailed:\n${failures.map((text) => `- ${text}`).join('\n')}`);
console.log(`\n${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exitCode = counts.failed > 0 ? 1 : 0;
