import { hash as digest } from 'node:crypto';
import { setBounded } from '@granary/shared/concurrency/bounded-map';
import { neverAborted } from '@granary/shared/concurrency/cancellation';
import type { FairLimiter } from '@granary/shared/concurrency/fair-limiter';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { Call, Client } from '@granary/shared/rpc/types';
import type { AppCaller } from './access';

export interface KeyLookup {
  /**
   * The caller of a key, undefined for one that does not exist (any more). Rejects with OVERLOADED when too many keys
   * are looked up that this process has not seen before.
   */
  find(key: string, call: Call, address: string): Promise<AppCaller | undefined>;
}

/** Longest use of an answer, from the sending of its question: a revoked key is dead everywhere within a second. */
const freshMs = 800;
/** Entries of each of the two caches, for keys that exist and for keys that do not. */
const cacheSize = 10_000;
const keyLengthMax = 200;

interface Entry {
  sentAtMs: number;
  caller: Promise<AppCaller | undefined>;
}

/**
 * Looks up keys in the data service. Answers are kept for a moment; parallel questions about one key are one. Keys that
 * were not seen before are looked up by way of `strangers`, so that a flood of invented keys holds up nobody whose key
 * exists. Only hashes of keys are held and sent.
 */
export function keyLookup(
  data: Pick<Client<DataDefinition>, 'verifyKey'>,
  strangers: FairLimiter,
  now: () => number = () => performance.now(),
): KeyLookup {
  /** Keys that exist, or did at their last look-up. */
  const known = new Map<string, Entry>();
  // Apart from the others, so that a flood of invented keys cannot push real ones out.
  const unknown = new Map<string, Entry>();
  /** Keys that were not seen before and are looked up; as many as the limiter has room for. */
  const pending = new Map<string, Promise<AppCaller | undefined>>();

  const keep = (id: string, entry: Entry, caller: AppCaller | undefined) => {
    if (!caller && known.get(id) === entry) known.delete(id);
    setBounded(caller ? known : unknown, id, entry, cacheSize);
  };
  const refresh = (id: string, hash: Buffer, call: Call): Promise<AppCaller | undefined> => {
    const entry: Entry = { sentAtMs: now(), caller: verify(data, hash, call) };
    setBounded(known, id, entry, cacheSize);
    entry.caller.then(
      (caller) => void (!caller && keep(id, entry, caller)),
      // The next one asks again.
      () => (entry.sentAtMs = -Infinity),
    );
    return entry.caller;
  };
  const find = async (id: string, hash: Buffer, call: Call, address: string) => {
    try {
      let sentAtMs = 0;
      const caller = await strangers.run(address, () => {
        sentAtMs = now();
        return verify(data, hash, call);
      });
      keep(id, { sentAtMs, caller: Promise.resolve(caller) }, caller);
      return caller;
    } finally {
      pending.delete(id);
    }
  };

  return {
    find(key, call, address) {
      if (!key.startsWith('app_') || key.length > keyLengthMax) return Promise.resolve(undefined);
      const hash = digest('sha256', key, 'buffer');
      const id = hash.toString('latin1');
      const entry = known.get(id) ?? unknown.get(id);
      if (entry && now() - entry.sentAtMs < freshMs) return entry.caller;
      // The question is shared with others, so it does not end when the one who asked first goes away.
      const shared = { ...call, signal: neverAborted };
      if (known.has(id)) return refresh(id, hash, shared);
      let found = pending.get(id);
      if (!found) pending.set(id, (found = find(id, hash, shared, address)));
      return found;
    },
  };
}

async function verify(
  data: Pick<Client<DataDefinition>, 'verifyKey'>,
  hash: Buffer,
  call: Call,
): Promise<AppCaller | undefined> {
  const answer = await data.verifyKey({ hash }, call);
  if (!answer.known) return undefined;
  const { keyId, name: keyName, appId, appNumber } = answer;
  return { kind: 'app', keyId, keyName, appId, appNumber, permissions: new Set(answer.permissions) };
}
