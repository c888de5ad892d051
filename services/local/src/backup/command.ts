import type { Say } from './progress';

/**
 * The body of a command: runs to its end or until a signal, prints a sentence when it fails, and sets the exit code.
 */
export async function runCommand(name: string, run: (say: Say, signal: AbortSignal) => Promise<void>): Promise<void> {
  const ending = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => ending.abort());
  try {
    await run((line) => console.log(line), ending.signal);
  } catch (error) {
    process.exitCode = 1;
    if (ending.signal.aborted) console.error(`${name} was interrupted. What was begun is removed.`);
    else console.error(`${name} failed: ${error instanceof Error ? error.message : String(error)}`);
  }
}
