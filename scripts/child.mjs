import { spawn } from 'node:child_process';
import { codeOf } from './errors.mjs';

/** @import { ChildProcess } from 'node:child_process' */

/**
 * Forwards SIGINT and SIGTERM to a child, so that it ends before this process does. Call what this returns once the
 * child has ended: it removes the handlers and, if there was a signal, sends it to this process again and returns true.
 * @param {ChildProcess} child
 */
export function forwardSignals(child) {
  /** @type {NodeJS.Signals | undefined} */
  let received;
  const forward = (/** @type {NodeJS.Signals} */ signal) => {
    received = signal;
    child.kill(signal);
  };
  process.on('SIGINT', forward).on('SIGTERM', forward);
  return () => {
    process.off('SIGINT', forward).off('SIGTERM', forward);
    // Without our handlers it has its default effect.
    if (received) process.kill(process.pid, received);
    return received !== undefined;
  };
}

/**
 * Runs a program to its end and returns `{ code, output, stdout }`, where `output` has both of its streams. A signal
 * that ends this process ends the program first; `show` passes its output through as it is written. The abort of
 * `signal` kills it.
 * @param {string} command
 * @param {string[]} args
 * @param {{ cwd?: string, env?: NodeJS.ProcessEnv, show?: boolean, signal?: AbortSignal }} [options]
 * @returns {Promise<{ code: number | null, output: string, stdout: string }>}
 */
export function runChild(command, args, { cwd, env = process.env, show = false, signal } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd,
      env,
      ...(signal && { signal, killSignal: 'SIGKILL' }),
      stdio: show ? ['ignore', 'inherit', 'inherit'] : ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    let stdout = '';
    child.stdout?.on('data', (text) => (stdout += text));
    for (const stream of [child.stdout, child.stderr])
      stream?.setEncoding('utf8').on('data', (text) => (output += text));
    const ended = forwardSignals(child);
    child.on('error', (error) => {
      ended();
      reject(error);
    });
    child.on('close', (code) => {
      if (!ended()) resolve({ code, output, stdout });
    });
  });
}

/** Whether there is a process of this id, of whichever user. @param {number} pid */
export function isRunning(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) === 'EPERM';
  }
}
