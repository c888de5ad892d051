import { hash as digest } from 'node:crypto';
import { neverAborted } from '@granary/shared/concurrency/cancellation';
import type { FairScheduler } from '@granary/shared/concurrency/fair-scheduler';
import { TtlCache } from '@granary/shared/concurrency/ttl-cache';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { Call, Client } from '@granary/shared/rpc/types';
import { LRUCache } from 'lru-cache';
import type { AppCaller } from './access';

/** How long a result is used, from the start of its look-up: a revoked key is refused everywhere within a second. */
const ttlMs = 800;
/** Entries of each cache. */
const cacheSize = 10_000;
const keyLengthMax = 200;

/**
 * Looks up keys in the data service and caches the results for a moment; concurrent look-ups of a key are one. Only
 * hashes of keys are kept and sent. Keys that were not seen before are looked up by `unknownLookups`, a few at a time,
 * and have a cache of their own, so a flood of invented keys neither delays nor evicts keys that exist.
 */
export class KeyLookup {
  /** Hashes of keys that existed when they were last looked up. */
  private readonly existing = new LRUCache<string, true>({ max: cacheSize });
  /** Results for those keys. */
  private readonly callers: TtlCache<AppCaller>;
  /** Results for other keys. */
  private readonly unknown: TtlCache<AppCaller>;

  constructor(
    private readonly data: Pick<Client<DataDefinition>, 'verifyKey'>,
    private readonly unknownLookups: FairScheduler,
    now: () => number = () => performance.now(),
  ) {
    this.callers = new TtlCache({ max: cacheSize, ttlMs, negativeTtlMs: 0 }, now);
    this.unknown = new TtlCache({ max: cacheSize, ttlMs }, now);
  }

  /**
   * The caller of a key, undefined for one that does not exist (any more). Rejects with OVERLOADED when too many keys
   * are looked up that were not seen before.
   */
  find(key: string, call: Call, clientAddress: string): Promise<AppCaller | undefined> {
    if (!key.startsWith('app_') || key.length > keyLengthMax) return Promise.resolve(undefined);
    const hash = digest('sha256', key, 'buffer');
    const id = hash.toString('latin1');
    // Others share the look-up, so it does not end when the client that caused it disconnects.
    const load = () => this.callers.get(id, () => this.verify(id, hash, { ...call, signal: neverAborted }));
    if (this.existing.has(id)) return load();
    return this.unknown.get(id, () => this.unknownLookups.run(clientAddress, load));
  }

  private async verify(id: string, hash: Buffer, call: Call): Promise<AppCaller | undefined> {
    const verified = await this.data.verifyKey({ hash }, call);
    const { keyId, name: keyName, appId, appNumber, permissions, payLimits } = verified;
    if (!verified.known) {
      this.existing.delete(id);
      return undefined;
    }
    this.existing.set(id, true);
    return {
      kind: 'app',
      keyId,
      keyName,
      appId,
      appNumber,
      permissions: new Set(permissions),
      ...(payLimits && { payLimits }),
    };
  }
}
