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
/** How long other endpoints are preferred to one that could not be reached. */
const cooldownMs = 1_000;

/** Resolves the names of the copies of the blobs service, and orders them for a request. */
export class EndpointResolver {
  private readonly resolved = new TtlCache<Endpoint[]>({ max: 1, ttlMs: Infinity, refreshAfterMs });
  private readonly cooldowns = new Cooldowns(cooldownMs);
  private nextIndex = 0;

  /** `host:port`, or several separated by commas. */
  constructor(private readonly addresses: string) {}

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
      return (await Promise.all(this.addresses.split(',').map(resolveAddress))).flat();
    } catch (error) {
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
