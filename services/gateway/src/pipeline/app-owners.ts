import { neverAborted } from '@granary/shared/concurrency/cancellation';
import type { FairScheduler } from '@granary/shared/concurrency/fair-scheduler';
import { TtlCache } from '@granary/shared/concurrency/ttl-cache';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { Call, Client } from '@granary/shared/rpc/types';
import { isAppNotFound } from '../admission/known-apps';

/** How long an owner is used: an application that is deleted has none within a second. */
const ttlMs = 800;
const cacheSize = 10_000;

export interface AppOwner {
  appNumber: string;
  address: string;
}

/** The wallets that own applications. Anybody may name those, so look-ups take turns by the address of the client. */
export class AppOwners {
  private readonly owners = new TtlCache<AppOwner>({ max: cacheSize, ttlMs });

  constructor(
    private readonly data: Pick<Client<DataDefinition>, 'getApplication'>,
    private readonly lookups: FairScheduler,
    /** Whether an application is known to exist: then its owner is looked up at once, whatever others invent. */
    private readonly isKnown: (appId: string) => boolean,
  ) {}

  /** Undefined for an application that does not exist, or has no owner. Rejects with OVERLOADED. */
  find(appId: string, call: Call, clientAddress: string): Promise<AppOwner | undefined> {
    // Others share the look-up, so it does not end when the client that caused it disconnects.
    const shared = { ...call, signal: neverAborted };
    return this.owners.get(appId, () => {
      const lookUp = () => this.lookUp(appId, shared);
      return this.isKnown(appId) ? lookUp() : this.lookups.run(clientAddress, lookUp);
    });
  }

  private async lookUp(appId: string, call: Call): Promise<AppOwner | undefined> {
    try {
      const { number: appNumber, ownerAddress: address } = await this.data.getApplication({ appId }, call);
      return address === undefined ? undefined : { appNumber, address };
    } catch (error) {
      if (isAppNotFound(error)) return undefined;
      throw error;
    }
  }
}
