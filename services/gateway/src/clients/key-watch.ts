import type { Logger } from '@granary/shared/logger';
import { newCall } from '@granary/shared/rpc/types';
import { newRequestId } from '../http/request-id';
import type { Clients } from './clients';

/** How often the keys of open streams are verified. */
const verifyEveryMs = 800;
/** Nothing is delivered by what was verified longer ago. */
const validForMs = 1_000;
const verifyTimeoutMs = 5_000;

/** Watches the keys by which streams read, all of them in one call, so that a revoked key ends its streams. */
export class KeyWatch {
  private readonly streams = new Map<string, Set<() => void>>();
  private timer: NodeJS.Timeout | undefined;
  /** How many keys were added so far, and how many of them the last verification had. */
  private addedCount = 0;
  private verifiedCount = 0;
  private verifiedAtMs = -Infinity;
  private verifying: Promise<void> | undefined;

  constructor(
    private readonly data: Pick<Clients['data'], 'findValidKeys'>,
    private readonly log: Logger,
  ) {}

  /** Calls `onRevoked` once the key is not valid any more; what it returns ends the watch. */
  add(keyId: string, onRevoked: () => void): () => void {
    const streams = this.streams.get(keyId) ?? new Set();
    // The request of the stream has verified its key, but perhaps by what was known a while before.
    if (!this.streams.has(keyId)) this.addedCount += 1;
    this.streams.set(keyId, streams.add(onRevoked));
    this.schedule();
    return () => {
      streams.delete(onRevoked);
      if (streams.size === 0) this.streams.delete(keyId);
    };
  }

  /** Resolves once every key has been verified within the last second. Rejects where that is not possible. */
  async fresh(): Promise<void> {
    const added = this.addedCount;
    const isFresh = () => this.verifiedCount >= added && performance.now() - this.verifiedAtMs <= validForMs;
    while (this.streams.size > 0 && !isFresh()) await this.verify();
  }

  private schedule(): void {
    if (this.streams.size === 0) return;
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.verify()
        .catch((error: unknown) => this.log.debug({ err: error }, 'the keys of streams could not be verified'))
        .finally(() => this.schedule());
    }, verifyEveryMs).unref();
  }

  private verify(): Promise<void> {
    this.verifying ??= this.verifyAll().finally(() => (this.verifying = undefined));
    return this.verifying;
  }

  private async verifyAll(): Promise<void> {
    const startedAtMs = performance.now();
    const added = this.addedCount;
    const keyIds = [...this.streams.keys()];
    if (keyIds.length > 0) {
      const call = newCall(newRequestId(), verifyTimeoutMs);
      const valid = new Set((await this.data.findValidKeys({ keyIds }, call)).keyIds);
      for (const keyId of keyIds) {
        if (!valid.has(keyId)) for (const onRevoked of [...(this.streams.get(keyId) ?? [])]) onRevoked();
      }
    }
    this.verifiedAtMs = startedAtMs;
    this.verifiedCount = added;
  }
}
