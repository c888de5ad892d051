import type { Say } from './progress';

/**
 * Runs the body of a command until it ends or a signal arrives, prints an error as a sentence, and sets the exit code.
 */
export async function runCommand(name: string, run: (say: Say, signal: AbortSignal) => Promise<void>): Promise<void> {
  const ending = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => ending.abort());
  try {
    await run((line) => console.log(line), ending.signal);
  } catch (error) {
    process.exitCode = 1;
    if (ending.signal.aborted) console.error(`${name} was interrupted. Partial results are removed.`);
    else console.error(`${name} failed: ${error instanceof Error ? error.message : String(error)}`);
  }
}
