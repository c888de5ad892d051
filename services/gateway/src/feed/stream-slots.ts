import { KeyedBudget } from '@granary/shared/concurrency/keyed-budget';
import { ServiceError } from '@granary/shared/errors';
import { bytesOf, type Subscription } from './subscription';

export interface StreamLimits {
  FEED_STREAMS: number;
  FEED_STREAMS_PER_APP: number;
  FEED_STREAMS_PER_KEY: number;
  FEED_STREAMS_PER_CLIENT: number;
}

/** Whom a stream counts against. */
export interface StreamOwner {
  appId: string;
  keyId: string | undefined;
  /** A key makes tokens for the many clients of an app, which count for the app only. */
  isByToken: boolean;
  clientAddress: string;
  subscriptions: readonly Subscription[];
}

/** Bytes of the filters and selections of all feeds, and of those of one app. */
const filterBytes = { total: 64 * 1024 * 1024, app: 8 * 1024 * 1024 };

/** How many feeds a gateway serves: in total, of an app, of a key, and of an address without a key. */
export class StreamSlots {
  private readonly budget: KeyedBudget<'app' | 'key' | 'client'>;
  private readonly filters = new KeyedBudget({ total: filterBytes.total, perKey: { app: filterBytes.app } });

  constructor(private readonly limits: StreamLimits) {
    this.budget = new KeyedBudget({
      total: limits.FEED_STREAMS,
      perKey: {
        app: limits.FEED_STREAMS_PER_APP,
        key: limits.FEED_STREAMS_PER_KEY,
        client: limits.FEED_STREAMS_PER_CLIENT,
      },
    });
  }

  counts(): { used: number; total: number } {
    return this.budget.counts();
  }

  /** What it returns gives the slot back. Throws TOO_MANY_STREAMS. */
  take({ appId, keyId, isByToken, clientAddress, subscriptions }: StreamOwner): () => void {
    const client = keyId === undefined ? { client: clientAddress } : isByToken ? {} : { key: keyId };
    const lease = this.budget.open({ app: appId, ...client });
    const memory = this.filters.open({ app: appId });
    const release = () => {
      lease.release();
      memory.release();
    };
    if (!lease.tryTake(1)) {
      release();
      throw this.refusal(appId, client);
    }
    if (!memory.tryTake(bytesOf(subscriptions))) {
      release();
      throw tooManyStreams('bytes of the filters of an app', filterBytes.app);
    }
    return release;
  }

  private refusal(app: string, { key, client }: { key?: string; client?: string }): ServiceError {
    const { FEED_STREAMS, FEED_STREAMS_PER_APP, FEED_STREAMS_PER_KEY, FEED_STREAMS_PER_CLIENT } = this.limits;
    const isFull = (dimension: 'app' | 'key' | 'client', name: string | undefined, max: number) =>
      name !== undefined && this.budget.usedBy(dimension, name) >= max;
    if (isFull('app', app, FEED_STREAMS_PER_APP)) return tooManyStreams('feeds of an app', FEED_STREAMS_PER_APP);
    if (isFull('key', key, FEED_STREAMS_PER_KEY)) return tooManyStreams('feeds of a key', FEED_STREAMS_PER_KEY);
    if (isFull('client', client, FEED_STREAMS_PER_CLIENT)) {
      return tooManyStreams('feeds of an address without a key', FEED_STREAMS_PER_CLIENT);
    }
    return tooManyStreams('feeds of this server', FEED_STREAMS);
  }
}

const tooManyStreams = (limit: string, max: number): ServiceError =>
  new ServiceError('RESOURCE_EXHAUSTED', 'TOO_MANY_STREAMS', `The limit of the ${limit} is reached, which is ${max}`, {
    details: { limit, max },
  });
