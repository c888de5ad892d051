import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { forwardSignals } from './child.mjs';

const root = path.dirname(import.meta.dirname);
/** The time limit from the start of this process. CI ends itself after 90 minutes. */
export const runTimeoutMs = Number(process.env.TEST_TIMEOUT_MINUTES || 80) * 60_000;
/** From the report, written when the last suite has ended, to the end of the process. */
const exitTimeoutMs = 60_000;
/** Of the message of a failure, in the summary of all. */
const messageLinesShown = 6;

/**
 * Runs jest with these arguments and returns `{ passed, failed, skipped, failures }`, the last with a text for each failure.
 * A suite that cannot be loaded counts as one failure, and so does a run that hangs: it is ended, and its remaining processes
 * are listed.
 */
export async function runJest(args, env = process.env) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'granary-jest-'));
  const report = path.join(folder, 'report.json');
  try {
    const hung = await run(['--json', `--outputFile=${report}`, ...args], env, report);
    const result = readReport(report);
    const failed = result ? result.numFailedTests + result.numRuntimeErrorTestSuites : 0;
    const counts = {
      passed: result?.numPassedTests ?? 0,
      failed,
      skipped: result ? result.numPendingTests + result.numTodoTests : 0,
      failures: result ? result.testResults.flatMap(failuresOf) : [],
    };
    if (hung.reason !== undefined || !result || (hung.code !== 0 && failed === 0)) {
      counts.failed++;
      counts.failures.push(`jest: ${hung.reason ?? `exit code ${hung.code}`}`);
      console.log(`jest: FAILED, ${hung.reason ?? `exit code ${hung.code}`}`);
    }
    return counts;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Resolves with the exit code, and with the reason if jest had to be ended. */
function run(args, env, report) {
  const child = spawn(process.execPath, [path.join(root, 'node_modules/jest/bin/jest.js'), ...args], {
    cwd: root,
    env,
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  let reason;
  const end = (why) => {
    if (reason !== undefined) return;
    reason = `${why}; it left running:\n${describeDescendants(child.pid)}`;
    for (const { pid } of descendants(child.pid).reverse()) kill(pid);
    child.kill('SIGKILL');
  };
  const leftMs = Math.max(0, runTimeoutMs - performance.now());
  const deadline = setTimeout(() => end(`it did not end within ${runTimeoutMs / 60_000} minutes`), leftMs);
  let reportedAtMs;
  const watch = setInterval(() => {
    if (!existsSync(report)) return;
    reportedAtMs ??= performance.now();
    if (performance.now() - reportedAtMs > exitTimeoutMs) end('its suites ended but the process did not');
  }, 1_000);
  const ended = forwardSignals(child);
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    // Not `close`: a process left by jest may keep the output open forever.
    child.once('exit', (code) => {
      clearTimeout(deadline);
      clearInterval(watch);
      ended();
      resolve({ code, reason });
    });
  });
}

function readReport(file) {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    // jest ended before it wrote one.
    return undefined;
  }
}

/** A text for each failure of a suite, with the beginning of its message. */
function failuresOf({ name, message, status, assertionResults }) {
  const suite = path.relative(root, name);
  const failed = assertionResults.filter((each) => each.status === 'failed');
  if (failed.length === 0 && status === 'failed') return [describeFailure(suite, message)];
  return failed.map((each) => describeFailure(`${suite}: ${each.fullName}`, each.failureMessages.join('\n')));
}

function describeFailure(title, message) {
  const lines = message.split('\n').filter((line) => line.trim() !== '');
  return [title, ...lines.slice(0, messageLinesShown).map((line) => `    ${line.trim()}`)].join('\n');
}

/** Descendants of a process, parents first; Linux only. */
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
  const below = (parent) => all.filter((each) => each.parent === parent).flatMap((each) => [each, ...below(each.pid)]);
  return below(pid);
}

function describeDescendants(pid) {
  const lines = descendants(pid).map((each) => `  ${each.pid} ${each.command.slice(0, 200)}`);
  return lines.length > 0 ? lines.join('\n') : '  no other process: its own timers or sockets keep it alive';
}

function kill(pid) {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended already.
  }
}
