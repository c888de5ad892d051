import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { StartError } from '@granary/shared/start-error';
import type { Run } from './runs';

const keptLines = 20;

/** Receives each output line of the program `name`. */
export type LineSink = (name: string, line: string) => void;

/** A started and monitored program. */
export interface Program {
  name: string;
  pid: number;
  /** Resolves with a sentence when the program has ended, for any reason. */
  ended: Promise<string>;
  /** Whether the program is still running. */
  running(): boolean;
  /** The latest lines of its output, for the message about its end. */
  lastLines(): string;
  /** The latest lines of its error output. */
  lastErrors(): string;
  /** Calls back with a sentence and the latest lines if the program ends without `stop`. */
  whenFailed(callback: (error: Error) => void): void;
  /** Sends SIGTERM, and SIGKILL after `graceMs`. */
  stop(graceMs: number): Promise<void>;
  /** Sends a signal, for tests of failures. */
  kill(signal: NodeJS.Signals): void;
}

/**
 * Starts a program in its own process group, so that Ctrl-C does not reach it early, and records it in the run. `sink`
 * receives the lines of both outputs. Throws if it cannot be started.
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
  // Without a process id the start failed, and `error` follows.
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
    // `close` comes after both outputs are read completely, so that the last lines are there.
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
 * Polls until `isReady` resolves to true. If the program ends first or `timeoutMs` elapse, throws with its latest
 * output; in both cases it no longer runs.
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

/** A service reports the reason of a failed start in a sentence; of other programs all output is kept. */
async function whyEnded(program: Program): Promise<string> {
  const ended = await program.ended;
  return `${ended} while it started:\n${program.lastErrors() || program.lastLines()}`;
}
