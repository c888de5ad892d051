import { fork } from 'node:child_process';
import path from 'node:path';
import { nodeFlags } from '@granary/shared/service/v8';
import type { Run } from '@granary/stack/programs/runs';

interface Done {
  id: number;
  result?: unknown;
  error?: string;
}

/** A process that runs Granaries from what was built, each with all services in it, see lent-granary.js. */
export interface GranaryHost {
  /** Granaries keep their folders in it. The run removes it. */
  directory: string;
  /** Has it do one of the works of lent-granary.js. Throws when that fails, or the process ends before it is done. */
  ask<T>(what: 'lend' | 'start' | 'restart' | 'stop' | 'migrate', options: object): Promise<T>;
  /** Resolves with a sentence when the process has ended. */
  ended: Promise<string>;
  end(): Promise<void>;
}

/**
 * Starts the process. It ends with this one, even if that is killed, for then nobody holds the other end of its
 * channel.
 */
export function startGranaryHost(run: Run): GranaryHost {
  const child = fork(path.join(__dirname, 'lent-granary.js'), {
    execArgv: [...nodeFlags],
    // Those of jest are for its own processes.
    env: { ...process.env, NODE_OPTIONS: '' },
  });
  const identity = run.note(child.pid!);
  const waiting = new Map<number, { resolve: (result: unknown) => void; reject: (error: Error) => void }>();
  let asked = 0;
  child.on('message', ({ id, result, error }: Done) => {
    const { resolve, reject } = waiting.get(id)!;
    waiting.delete(id);
    if (error === undefined) resolve(result);
    else reject(new Error(error));
  });
  const ended = new Promise<string>((resolve) => {
    child.once('exit', (code, signal) => {
      run.forget(identity);
      const sentence = `Its process has ended (${signal ?? `exit code ${code}`}).`;
      for (const { reject } of waiting.values()) reject(new Error(sentence));
      resolve(sentence);
    });
  });
  return {
    directory: run.directory,
    ended,
    ask: <T>(what: string, options: object) =>
      new Promise<T>((resolve, reject) => {
        const id = asked++;
        waiting.set(id, { resolve: resolve as (result: unknown) => void, reject });
        child.send({ id, what, options }, (error) => {
          if (error && waiting.delete(id)) reject(error);
        });
      }),
    end: async () => {
      if (child.connected) child.disconnect();
      await ended;
    },
  };
}
