import { Backoff } from '../concurrency/backoff';
import type { CancelSignal } from '../concurrency/cancellation';
import type { Logger } from '../logger';
import { NotAvailableError } from '../start-error';

const delays = { firstMs: 200, maxMs: 2_000 };
const logEveryMs = 10_000;

/** A signal to stop came before the start was complete. */
export class StartInterruptedError extends Error {
  override readonly name = 'StartInterruptedError';
}

/**
 * Repeats a step of the start for as long as it throws a NotAvailableError, with one line in the log every 10 s. Any
 * other error of the step is thrown. Throws a StartInterruptedError once `interrupted` aborts. Without `interrupted`
 * the step runs once.
 */
export async function waitForDependency<T>(
  log: Logger,
  interrupted: CancelSignal | undefined,
  step: () => Promise<T>,
): Promise<T> {
  if (!interrupted) return step();
  const backoff = new Backoff(delays);
  let loggedAtMs = -Infinity;
  for (;;) {
    try {
      return await step();
    } catch (error) {
      if (interrupted.aborted) throw new StartInterruptedError('stopped before the start was complete');
      if (!(error instanceof NotAvailableError)) throw error;
      if (performance.now() - loggedAtMs >= logEveryMs) {
        loggedAtMs = performance.now();
        log.warn(`not ready, and waiting: ${error.message}`);
      }
      await backoff.wait(interrupted);
    }
  }
}
