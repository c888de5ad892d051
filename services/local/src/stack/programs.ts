import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { StartError } from '@granary/shared/start-error';
import type { Run } from './runs';

const keptLines = 20;

/** Takes a line that the program `name` wrote. */
export type LineSink = (name: string, line: string) => void;

/** A program that was started and is watched. */
export interface Program {
  name: string;
  pid: number;
  /** Settles with a sentence when it has ended, for whatever reason. */
  ended: Promise<string>;
  /** True as long as it has not ended. */
  running(): boolean;
  /** What it wrote last, for the message about its end. */
  lastLines(): string;
  /** The same of its error output alone. */
  lastErrors(): string;
  /** Calls back with a sentence and its last lines when it ends without having been stopped. */
  whenFailed(callback: (error: Error) => void): void;
  /** Asks it to end by SIGTERM, and after `graceMs` does not ask any more. */
  stop(graceMs: number): Promise<void>;
  /** Sends a signal, to see what others make of it. */
  kill(signal: NodeJS.Signals): void;
}

/**
 * Starts a program in a process group of its own, so that Ctrl-C does not reach it before its turn, and notes it in the
 * run. Its lines on both outputs go to `sink`. Throws when it cannot be started.
 */
export async function startProgram(
  run: Run,
  name: string,
  command: string,
  args: string[],
  options: { cwd: string; env: NodeJS.ProcessEnv; sink?: LineSink | undefined },
): Promise<Program> {
  const { cwd, env, sink } = options;
  const child = spawn(command, args, { cwd, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
  // Without a process id it was not started, and `error` follows.
  const identity = child.pid === undefined ? '' : run.note(child.pid);
  const recent: string[] = [];
  const errors: string[] = [];
  for (const [stream, kept] of [
    [child.stdout, [recent]],
    [child.stderr, [recent, errors]],
  ] as const) {
    createInterface({ input: stream }).on('line', (line) => {
      for (const lines of kept) {
        lines.push(line);
        if (lines.length > keptLines) lines.shift();
      }
      sink?.(name, line);
    });
  }
  const ended = new Promise<string>((resolve) => {
    // `close` comes once the outputs are read to their end, so that the last lines are there.
    child.once('close', (code, signal) => {
      run.forget(identity);
      resolve(`${name} has ended (${signal ?? `exit code ${code}`})`);
    });
  });
  await new Promise((resolve, reject) => child.once('spawn', resolve).once('error', reject));
  let stopping = false;
  const running = (): boolean => child.exitCode === null && child.signalCode === null;
  return {
    name,
    pid: child.pid ?? 0,
    ended,
    running,
    lastLines: () => recent.join('\n'),
    lastErrors: () => errors.join('\n'),
    kill: (signal) => void child.kill(signal),
    whenFailed: (callback) => {
      void ended.then((sentence) => {
        if (!stopping) callback(new StartError(`${sentence}. Its last lines:\n${recent.join('\n')}`));
      });
    },
    stop: async (graceMs) => {
      stopping = true;
      child.kill('SIGTERM');
      const cutOff = setTimeout(() => child.kill('SIGKILL'), graceMs);
      await ended;
      clearTimeout(cutOff);
    },
  };
}

/**
 * Polls until `isReady` answers true. Throws what the program wrote last when it ends before, and when `timeoutMs` are
 * over; in both cases it does not run any more.
 */
export async function untilReady(program: Program, timeoutMs: number, isReady: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  while (!(await isReady())) {
    if (!program.running()) throw new StartError(await whyEnded(program));
    if (Date.now() > deadline) {
      program.kill('SIGKILL');
      await program.ended;
      throw new StartError(`${program.name} was not ready after ${timeoutMs / 1000} s:\n${program.lastLines()}`);
    }
    await delay(20);
  }
}

/** A service says in a sentence why it does not start; of other programs all that they wrote is kept. */
async function whyEnded(program: Program): Promise<string> {
  const ended = await program.ended;
  return `${ended} while it started:\n${program.lastErrors() || program.lastLines()}`;
}
