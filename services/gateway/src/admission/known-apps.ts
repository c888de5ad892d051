import { neverAborted } from '@granary/shared/concurrency/cancellation';
import type { FairScheduler } from '@granary/shared/concurrency/fair-scheduler';
import { ServiceError, notFound } from '@granary/shared/errors';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { Client, Call } from '@granary/shared/rpc/types';
import { LRUCache } from 'lru-cache';

const APP_NOT_FOUND = 'APP_NOT_FOUND';
/** Entries of each of the two caches. */
const cacheSize = 10_000;
/** How long the absence of an app is cached, from the start of its look-up: another gateway may create it. */
const missingTtlMs = 500;

/**
 * The applications that exist, as far as this process knows. A request about an app that is not known to exist waits
 * for a look-up. All such look-ups share a few slots, so invented names cost the apps that exist nothing.
 */
export class KnownApps {
  private readonly known = new LRUCache<string, true>({ max: cacheSize });
  private readonly missing = new LRUCache<string, true>({ max: cacheSize, ttl: missingTtlMs });
  private readonly lookups = new Map<string, Promise<void>>();

  constructor(
    private readonly data: Pick<Client<DataDefinition>, 'getApplication'>,
    private readonly scheduler: FairScheduler,
  ) {}

  /**
   * Returns whether the app is known to exist, and marks it as used: the least recently used apps are evicted first.
   */
  has(appId: string): boolean {
    return this.known.get(appId) === true;
  }

  /**
   * Resolves once an app that was not known is found. Rejects with APP_NOT_FOUND, or OVERLOADED when too many names are
   * looked up. `clientAddress` is the key of the client's address.
   */
  find(appId: string, clientAddress: string, call: Call): Promise<void> {
    if (this.missing.has(appId)) return Promise.reject(appNotFound(appId));
    // Shared by the requests of one address only: that of another may wait behind names that it invented, or be
    // refused.
    const key = `${clientAddress} ${appId}`;
    let lookup = this.lookups.get(key);
    if (!lookup) {
      // Others share the look-up, so it does not end when the client that caused it disconnects.
      lookup = this.scheduler.run(clientAddress, () => this.lookUp(appId, { ...call, signal: neverAborted }));
      this.lookups.set(key, lookup);
      const forget = () => this.lookups.delete(key);
      lookup.then(forget, forget);
    }
    return lookup;
  }

  /** The app exists: it was created here, or a key of it is valid. */
  add(appId: string): void {
    if (this.has(appId)) return;
    this.known.set(appId, true);
    this.missing.delete(appId);
  }

  /** The app was deleted, or was not found. */
  delete(appId: string): void {
    this.known.delete(appId);
  }

  private async lookUp(appId: string, call: Call): Promise<void> {
    // Another address may have found it while this look-up waited.
    if (this.known.has(appId)) return;
    const startedAtMs = performance.now();
    try {
      await this.data.getApplication({ appId }, call);
    } catch (error) {
      // It may have been created after the look-up.
      if (this.known.has(appId)) return;
      if (isAppNotFound(error)) this.missing.set(appId, true, { start: startedAtMs });
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
