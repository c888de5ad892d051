import { Backoff } from '@granary/shared/concurrency/backoff';
import { Cancellation } from '@granary/shared/concurrency/cancellation';
import { ServiceError } from '@granary/shared/errors';
import type { Logger } from '@granary/shared/logger';

/** Writes that this process finishes; it holds their bodies that long. */
const pendingMax = 50;
/** How long one is tried. */
const triedMs = 600_000;
const retries = { firstMs: 200, maxMs: 5_000 };

/**
 * Writes whose payments are still being settled when their requests are answered: they are done by this process once
 * that is so. What it does not get to, because it ends or because there are too many, is done when the same request
 * comes again.
 */
export class PendingWrites {
  private readonly running = new Set<string>();
  private readonly stopping = new Cancellation();

  constructor(private readonly log: Logger) {}

  /**
   * `attempt` is repeated until it resolves to true, or fails with an error that will come again. One runs for each
   * ticket. False: there are too many, and nothing is done.
   */
  add(ticketId: string, attempt: () => Promise<boolean>): boolean {
    if (this.running.has(ticketId)) return true;
    if (this.running.size >= pendingMax) return false;
    this.running.add(ticketId);
    void this.finish(ticketId, attempt).finally(() => this.running.delete(ticketId));
    return true;
  }

  /** Ends the attempts; none of them has to be waited for. */
  stop(): void {
    this.stopping.abort();
  }

  private async finish(ticketId: string, attempt: () => Promise<boolean>): Promise<void> {
    const { log, stopping } = this;
    const backoff = new Backoff(retries);
    const giveUpAtMs = performance.now() + triedMs;
    while (!stopping.aborted && performance.now() < giveUpAtMs) {
      try {
        if (await attempt()) return;
      } catch (error) {
        if (!mayPass(error)) {
          log.info({ err: error, ticket: ticketId }, 'a write whose payment took long was refused');
          return;
        }
      }
      await backoff.wait(stopping);
    }
  }
}

const passing: ReadonlySet<string> = new Set(['UNAVAILABLE', 'DEADLINE_EXCEEDED', 'RESOURCE_EXHAUSTED', 'ABORTED']);

/** Whether an error may not come again. */
const mayPass = (error: unknown): boolean => error instanceof ServiceError && passing.has(error.code);
