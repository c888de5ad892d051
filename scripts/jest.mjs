import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { forwardSignals } from './child.mjs';
import { readRecords } from './test/history.mjs';
import { reportVariable } from './test/reporter.mjs';

/** @import { SuiteResult } from './test/reporter.mjs' */

const root = path.dirname(import.meta.dirname);
/**
 * From the start of this process to the end of every run of jest. CI, which ends itself after 90 minutes, does more
 * after it.
 */
export const runTimeoutMs = Number(process.env.TEST_TIMEOUT_MINUTES || 75) * 60_000;
/** From the end of the last suite to the end of the process, which stops what all suites share. */
const exitTimeoutMs = 90_000;

/**
 * Runs jest with these arguments and returns the result of each suite that has ended. `problem` says what is wrong with
 * the run as a whole: it hung, so that it was ended and its remaining processes are listed, or jest failed without a
 * failure of a suite.
 * @param {string[]} args @param {object} [options]
 * @param {NodeJS.ProcessEnv} [options.env]
 * @param {number} [options.untilMs] when it is ended at the latest, from the start of this process
 * @param {AbortSignal} [options.signal] ends it
 * @param {boolean} [options.isQuiet] returns its output instead of showing it
 * @returns {Promise<{ suites: SuiteResult[], problem: string | undefined, output: string }>}
 */
export async function runJest(args, { env, untilMs = runTimeoutMs, signal, isQuiet = false } = {}) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'granary-jest-'));
  const report = path.join(folder, 'report.jsonl');
  const parts = { reporters: 'reporter', testSequencer: 'order', testRunner: 'suite-runner' };
  const ours = Object.entries(parts).map(([option, file]) => `--${option}=${root}/scripts/test/${file}.mjs`);
  const all = { ...process.env, ...env, [reportVariable]: report };
  try {
    const options = { env: all, untilMs, signal, isQuiet, endMark: `${report}.end` };
    const { code, reason, output } = await run([...args, ...ours], options);
    const suites = readRecords(report);
    const isExplained = code === 0 || suites.some(({ failures }) => failures.length > 0);
    return { suites, problem: reason ?? (isExplained ? undefined : `exit code ${code}`), output };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * Resolves with the exit code, and with the reason if jest had to be ended.
 * @param {string[]} args
 * @param {{ env: NodeJS.ProcessEnv, untilMs: number, signal: AbortSignal | undefined, isQuiet: boolean,
 *   endMark: string }} options `endMark` is a file that exists once the last suite has ended
 * @returns {Promise<{ code: number | null, reason: string | undefined, output: string }>}
 */
function run(args, { env, untilMs, signal, isQuiet, endMark }) {
  const child = spawn(process.execPath, [path.join(root, 'node_modules/jest/bin/jest.js'), ...args], {
    cwd: root,
    env,
    stdio: isQuiet ? ['ignore', 'pipe', 'pipe'] : ['ignore', 'inherit', 'inherit'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream?.setEncoding('utf8').on('data', (text) => (output += text));
  /** @type {string | undefined} */
  let reason;
  const end = (/** @type {string} */ why) => {
    if (reason !== undefined || child.pid === undefined) return;
    reason = `${why}; it left running:\n${describeDescendants(child.pid)}`;
    for (const { pid } of descendants(child.pid).reverse()) kill(pid);
    child.kill('SIGKILL');
  };
  const limit = `it did not end within ${(untilMs / 60_000).toFixed(1)} minutes of the start`;
  const deadline = setTimeout(() => end(limit), Math.max(0, untilMs - performance.now()));
  /** @type {number | undefined} */
  let endedAtMs;
  const watch = setInterval(() => {
    if (!existsSync(endMark)) return;
    endedAtMs ??= performance.now();
    if (performance.now() - endedAtMs > exitTimeoutMs) end('its suites ended but the process did not');
  }, 1_000);
  const abort = () => end(String(signal?.reason));
  signal?.addEventListener('abort', abort);
  const ended = forwardSignals(child);
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    // Not `close`: a process left by jest may keep the output open forever.
    child.once('exit', (code) => {
      clearTimeout(deadline);
      clearInterval(watch);
      signal?.removeEventListener('abort', abort);
      ended();
      resolve({ code, reason, output });
    });
  });
}

/**
 * Descendants of a process, parents first; Linux only.
 * @param {number} pid
 * @returns {{ pid: number, parent: number, command: string }[]}
 */
function descendants(pid) {
  if (process.platform !== 'linux') return [];
  const all = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
        const parent = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
        const command = readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
        return [{ pid: Number(name), parent, command }];
      } catch {
        // It has ended meanwhile.
        return [];
      }
    });
  /** @type {(parent: number) => typeof all} */
  const below = (parent) => all.filter((each) => each.parent === parent).flatMap((each) => [each, ...below(each.pid)]);
  return below(pid);
}

/** @param {number} pid */
function describeDescendants(pid) {
  const lines = descendants(pid).map((each) => `  ${each.pid} ${each.command.slice(0, 200)}`);
  return lines.length > 0 ? lines.join('\n') : '  no other process: its own timers or sockets keep it alive';
}

/** @param {number} pid */
function kill(pid) {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended already.
  }
}
