import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { unavailable } from '@granary/shared/errors';

/** One copy of the blobs service. */
export interface Endpoint {
  host: string;
  port: number;
  /** The name that its certificate is for; absent when it was given by its address. */
  servername?: string;
}

/** After this time names are looked up again, beside the transfers that ask. */
const freshMs = 2_000;
/** How long the other copies are preferred to one that could not be reached. */
const cooldownMs = 1_000;

/** The copies of the blobs service, by a name with one or more addresses or by several with commas between. */
export class EndpointResolver {
  private endpoints: Endpoint[] = [];
  private resolvedAtMs = -Infinity;
  private resolving: Promise<void> | undefined;
  private nextIndex = 0;
  private readonly cooldownUntilMs = new Map<string, number>();

  /** `host:port`, or several with commas between. */
  constructor(private readonly addresses: string) {}

  /** All copies: first the one whose turn it is, last those that could not be reached lately. Throws UNAVAILABLE. */
  async candidates(): Promise<Endpoint[]> {
    if (performance.now() - this.resolvedAtMs > freshMs) this.resolving ??= this.resolve();
    if (this.endpoints.length === 0) await this.resolving;
    if (this.endpoints.length === 0) throw unavailable('The blobs service cannot be found');
    const first = this.nextIndex++ % this.endpoints.length;
    const inTurn = [...this.endpoints.slice(first), ...this.endpoints.slice(0, first)];
    if (this.cooldownUntilMs.size === 0) return inTurn;
    return [
      ...inTurn.filter((peer) => !this.isCoolingDown(peer)),
      ...inTurn.filter((peer) => this.isCoolingDown(peer)),
    ];
  }

  /** It could not be reached, or went away before it had begun with a transfer. */
  markUnreachable(peer: Endpoint): void {
    this.cooldownUntilMs.set(keyOf(peer), performance.now() + cooldownMs);
  }

  private isCoolingDown(peer: Endpoint): boolean {
    const untilMs = this.cooldownUntilMs.get(keyOf(peer));
    if (untilMs === undefined) return false;
    if (untilMs > performance.now()) return true;
    this.cooldownUntilMs.delete(keyOf(peer));
    return false;
  }

  /** Names that cannot be looked up now leave everything as it was. */
  private async resolve(): Promise<void> {
    try {
      this.endpoints = (await Promise.all(this.addresses.split(',').map(resolveAddress))).flat();
    } catch {
      // The next transfer looks again.
    }
    this.resolvedAtMs = performance.now();
    this.resolving = undefined;
  }
}

const keyOf = ({ host, port }: Endpoint): string => `${host} ${port}`;

async function resolveAddress(address: string): Promise<Endpoint[]> {
  const colon = address.lastIndexOf(':');
  const name = address.slice(0, colon).replace(/^\[(.*)\]$/, '$1');
  const port = Number(address.slice(colon + 1));
  if (isIP(name) !== 0) return [{ host: name, port }];
  return (await lookup(name, { all: true })).map(({ address: host }) => ({ host, port, servername: name }));
}
