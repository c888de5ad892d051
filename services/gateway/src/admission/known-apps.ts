import { setBounded } from '@granary/shared/concurrency/bounded-map';
import type { FairLimiter } from '@granary/shared/concurrency/fair-limiter';
import { ServiceError, notFound } from '@granary/shared/errors';
import { neverAborted } from '@granary/shared/concurrency/cancellation';
import type { Client, Call } from '@granary/shared/rpc/types';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';

const APP_NOT_FOUND = 'APP_NOT_FOUND';
/** Entries of each of the two caches. */
const cacheSize = 10_000;
/** How long the absence of an app is trusted: another gateway may make it meanwhile. */
const missingFreshMs = 500;

/**
 * Which applications exist, as far as this process has seen it. A request about an app that is not known to exist waits
 * for a look-up, and all look-ups of strangers' names share a small part of the data service: inventing names costs the
 * apps that exist nothing.
 */
export class KnownApps {
  private readonly known = new Set<string>();
  /** When the look-up began that did not find it. */
  private readonly missing = new Map<string, number>();
  private readonly lookUps = new Map<string, Promise<void>>();

  constructor(
    private readonly data: Pick<Client<DataDefinition>, 'getApplication'>,
    private readonly limiter: FairLimiter,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Counts as a use: the apps that were not used for the longest time are forgotten first. */
  has(appId: string): boolean {
    if (!this.known.has(appId)) return false;
    if (this.known.size > cacheSize / 2) {
      this.known.delete(appId);
      this.known.add(appId);
    }
    return true;
  }

  /**
   * Resolves once an app that was not known is found. Rejects with APP_NOT_FOUND, or OVERLOADED when too many names are
   * looked up. `address` is the key of the client's address.
   */
  find(appId: string, address: string, call: Call): Promise<void> {
    const missingSinceMs = this.missing.get(appId);
    if (missingSinceMs !== undefined) {
      if (this.now() - missingSinceMs < missingFreshMs) return Promise.reject(appNotFound(appId));
      this.missing.delete(appId);
    }
    // Shared by the requests of one address only: another one's may wait behind names that it invented, or be refused.
    const key = `${address} ${appId}`;
    let lookUp = this.lookUps.get(key);
    if (!lookUp) {
      // It is shared with others, so it does not end when the client that asked first goes away.
      lookUp = this.limiter.run(address, () => this.lookUp(appId, { ...call, signal: neverAborted }));
      this.lookUps.set(key, lookUp);
      const forget = () => this.lookUps.delete(key);
      lookUp.then(forget, forget);
    }
    return lookUp;
  }

  /** The app exists: it was made here, or a key of it is valid. */
  add(appId: string): void {
    if (this.known.has(appId)) return;
    this.known.add(appId);
    this.missing.delete(appId);
    if (this.known.size > cacheSize) this.known.delete(this.known.values().next().value!);
  }

  /** The app was deleted, or was not found. */
  delete(appId: string): void {
    this.known.delete(appId);
  }

  private async lookUp(appId: string, call: Call): Promise<void> {
    // Found meanwhile, for another address.
    if (this.known.has(appId)) return;
    const beganMs = this.now();
    try {
      await this.data.getApplication({ appId }, call);
    } catch (error) {
      // Made meanwhile, after the look-up had passed.
      if (this.known.has(appId)) return;
      if (isAppNotFound(error)) setBounded(this.missing, appId, beganMs, cacheSize);
      throw error;
    }
    this.add(appId);
  }
}

export function isAppNotFound(error: unknown): boolean {
  return error instanceof ServiceError && error.reason === APP_NOT_FOUND;
}

function appNotFound(appId: string): ServiceError {
  return notFound(APP_NOT_FOUND, `There is no app ${appId}`);
}
