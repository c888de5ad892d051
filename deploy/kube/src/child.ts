import { spawn, type ChildProcess } from 'node:child_process';

/** The exit code and the output of a program that has ended. */
export interface Ended {
  /** Null for a program that a signal has ended. */
  code: number | null;
  /** All that it printed, to both of its outputs. */
  output: string;
  stdout: string;
}

/**
 * Runs a program to its end. A signal that ends this process ends the program first; the abort of `signal` kills it.
 */
export function runChild(
  command: string,
  args: readonly string[],
  { env = process.env, signal }: { env?: NodeJS.ProcessEnv; signal?: AbortSignal | undefined } = {},
): Promise<Ended> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { env, signal, killSignal: 'SIGKILL', stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    let stdout = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
      output += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => (output += text));
    const stopForwarding = forwardSignals(child);
    child.on('error', (error) => {
      stopForwarding();
      reject(error);
    });
    child.on('close', (code) => {
      if (!stopForwarding()) resolve({ code, output, stdout });
    });
  });
}

/**
 * Forwards SIGINT and SIGTERM to a child, so that it ends before this process does. The function that is returned
 * removes the handlers and, if there was a signal, sends it to this process again and returns true.
 */
function forwardSignals(child: ChildProcess): () => boolean {
  let received: NodeJS.Signals | undefined;
  const forward = (signal: NodeJS.Signals): void => {
    received = signal;
    child.kill(signal);
  };
  process.on('SIGINT', forward).on('SIGTERM', forward);
  return () => {
    process.off('SIGINT', forward).off('SIGTERM', forward);
    // Without our handlers the signal has its default effect.
    if (received !== undefined) process.kill(process.pid, received);
    return received !== undefined;
  };
}
