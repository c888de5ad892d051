import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { Cooldowns } from '@granary/shared/concurrency/cooldowns';
import { TtlCache } from '@granary/shared/concurrency/ttl-cache';
import { parseHostPort } from '@granary/shared/host-port';
import { unavailable } from '@granary/shared/errors';

/** The address of one copy of the blobs service. */
export interface Endpoint {
  host: string;
  port: number;
  /** The name of its certificate; absent if it was configured by its address. */
  servername?: string;
}

/** After this time names are resolved again, in the background. */
const refreshAfterMs = 2_000;
/**
 * After this time requests wait for it: copies that leave serve for some seconds longer than their names lead to them.
 */
const staleAfterMs = 5_000;
/** How long other endpoints are preferred to one that could not be reached. */
const cooldownMs = 1_000;

/** Resolves the names of the copies of the blobs service, and orders them for a request. */
export class EndpointResolver {
  private readonly resolved: TtlCache<Endpoint[]>;
  private readonly cooldowns = new Cooldowns(cooldownMs);
  private lastFound: Endpoint[] | undefined;
  private nextIndex = 0;

  /**
   * @param addresses `host:port`, or several separated by commas.
   * @param resolveOne Resolves one of them.
   * @param now In milliseconds.
   */
  constructor(
    private readonly addresses: string,
    private readonly resolveOne = resolveAddress,
    now?: () => number,
  ) {
    this.resolved = new TtlCache({ max: 1, ttlMs: staleAfterMs, refreshAfterMs }, now);
  }

  /**
   * All endpoints: round robin, and last those that could not be reached lately. While names cannot be resolved the
   * endpoints remain those that were found before. Throws UNAVAILABLE when there are none.
   */
  async candidates(): Promise<Endpoint[]> {
    const endpoints = await this.resolved.get('', () => this.resolve());
    if (!endpoints) throw unavailable('The blobs service cannot be found');
    const first = this.nextIndex++ % endpoints.length;
    return this.cooldowns.order([...endpoints.slice(first), ...endpoints.slice(0, first)], keyOf);
  }

  /** The endpoint could not be reached, or closed the connection before a transfer began. */
  markUnreachable(endpoint: Endpoint): void {
    this.cooldowns.begin(keyOf(endpoint));
  }

  private async resolve(): Promise<Endpoint[]> {
    try {
      return (this.lastFound = (
        await Promise.all(this.addresses.split(',').map((address) => this.resolveOne(address)))
      ).flat());
    } catch (error) {
      if (this.lastFound) return this.lastFound;
      throw unavailable('The blobs service cannot be found', error);
    }
  }
}

const keyOf = ({ host, port }: Endpoint): string => `${host} ${port}`;

async function resolveAddress(address: string): Promise<Endpoint[]> {
  const { host: name, port } = parseHostPort(address);
  if (isIP(name) !== 0) return [{ host: name, port }];
  return (await lookup(name, { all: true })).map(({ address: host }) => ({ host, port, servername: name }));
}
