import type { CancelSignal } from '@granary/shared/concurrency/cancellation';
import { FairScheduler } from '@granary/shared/concurrency/fair-scheduler';
import { overloaded } from '../errors/problem';

/** Reads that streams make on their own at a time: of a gateway, and of one app. */
const readsMax = { gateway: 8, app: 2 };

/**
 * The turns of streams to read the log on their own, until they are live. After a restart, or where many clients stall,
 * all of them come at once, and would otherwise leave little of the data service to others. They wait instead, without
 * a limit of time: there are no more of them than connections.
 */
export class ReadTurns {
  private readonly scheduler = new FairScheduler({
    concurrency: readsMax.gateway,
    concurrencyPerKey: readsMax.app,
    refusal: overloaded,
  });

  /** Reads once it is the turn of the app. Rejects as `read` does, and with CANCELLED when the signal aborts before. */
  take<T>(appId: string, read: () => Promise<T>, signal: CancelSignal): Promise<T> {
    return this.scheduler.run(appId, read, { signal });
  }
}
