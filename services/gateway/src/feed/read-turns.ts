import type { CancelSignal } from '@granary/shared/concurrency/cancellation';
import { FairScheduler } from '@granary/shared/concurrency/fair-scheduler';
import { overloaded } from '../errors/problem';
import { isStranger, type FeedRequest } from './subscription';

/** Reads at a time: of a gateway, and of one app. Those of strangers are apart, so that no key waits for them. */
const readsMax = {
  keys: { concurrency: 16, concurrencyPerKey: 2 },
  strangers: { concurrency: 4, concurrencyPerKey: 1 },
};
/** Tokens that are checked at a time: of a gateway, and of one address, which may be that of a proxy. */
const tokensMax = { concurrency: 8, concurrencyPerKey: 4 };

export interface TurnLimits {
  /** The reads of an app, and the checks of an address, that may wait. */
  queueMax: number;
  /** How long a read may wait; the check of a token half as long. */
  timeoutMs: number;
}

/**
 * The turns of feeds to read on their own: what a stream or a wait begins with, and what a stream has missed. After a
 * restart, or where many clients stall, all of them come at once, and would otherwise leave little of the data service
 * to others.
 */
export class ReadTurns {
  private readonly keys: FairScheduler;
  private readonly strangers: FairScheduler;
  private readonly tokens: FairScheduler;

  constructor({ queueMax, timeoutMs }: TurnLimits) {
    const limits = { queueMaxPerFlow: queueMax, timeoutMs, refusal: overloaded };
    this.keys = new FairScheduler({ ...readsMax.keys, ...limits });
    this.strangers = new FairScheduler({ ...readsMax.strangers, ...limits });
    this.tokens = new FairScheduler({ ...tokensMax, ...limits, timeoutMs: timeoutMs / 2 });
  }

  /**
   * Reads the log once it is the turn of the app. Rejects as `read` does, with OVERLOADED where too many wait or the
   * time is up, and with CANCELLED when the signal aborts before.
   */
  read<T>(
    { appId, subscriptions }: Pick<FeedRequest, 'appId' | 'subscriptions'>,
    read: () => Promise<T>,
    signal: CancelSignal,
  ): Promise<T> {
    const turns = isStranger(subscriptions) ? this.strangers : this.keys;
    return turns.run(appId, read, { signal });
  }

  /** Checks a token, which may be anybody's, once it is the turn of the address. Rejects as `read` does. */
  checkToken<T>(clientAddress: string, check: () => Promise<T>, signal: CancelSignal): Promise<T> {
    return this.tokens.run(clientAddress, check, { signal });
  }

  /** How many wait. */
  get waiting(): number {
    return [this.keys, this.strangers, this.tokens].reduce((sum, turns) => sum + turns.counts().waiting, 0);
  }
}
