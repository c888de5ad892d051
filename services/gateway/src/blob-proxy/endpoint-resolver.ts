import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { unavailable } from '@granary/shared/errors';

/** One copy of the blobs service. */
export interface BytePeer {
  host: string;
  port: number;
  /** The name that its certificate is for; absent when it was given by its address. */
  servername?: string;
}

/** After this time names are looked up again, beside the transfers that ask. */
const freshMs = 2_000;
/** How long the other copies are preferred to one that could not be reached. */
const doubtfulMs = 1_000;

/** The copies of the blobs service, by a name with one or more addresses or by several with commas between. */
export class BytePeers {
  private found: BytePeer[] = [];
  private lookedAtMs = -Infinity;
  private looking: Promise<void> | undefined;
  private turn = 0;
  private readonly doubtfulUntilMs = new Map<string, number>();

  /** `host:port`, or several with commas between. */
  constructor(private readonly addresses: string) {}

  /** All copies: first the one whose turn it is, last those that could not be reached lately. Throws UNAVAILABLE. */
  async inTurn(): Promise<BytePeer[]> {
    if (performance.now() - this.lookedAtMs > freshMs) this.looking ??= this.look();
    if (this.found.length === 0) await this.looking;
    if (this.found.length === 0) throw unavailable('The blobs service cannot be found');
    const first = this.turn++ % this.found.length;
    const inTurn = [...this.found.slice(first), ...this.found.slice(0, first)];
    if (this.doubtfulUntilMs.size === 0) return inTurn;
    return [...inTurn.filter((peer) => !this.isDoubtful(peer)), ...inTurn.filter((peer) => this.isDoubtful(peer))];
  }

  /** It could not be reached, or went away before it had begun with a transfer. */
  doubt(peer: BytePeer): void {
    this.doubtfulUntilMs.set(keyOf(peer), performance.now() + doubtfulMs);
  }

  private isDoubtful(peer: BytePeer): boolean {
    const untilMs = this.doubtfulUntilMs.get(keyOf(peer));
    if (untilMs === undefined) return false;
    if (untilMs > performance.now()) return true;
    this.doubtfulUntilMs.delete(keyOf(peer));
    return false;
  }

  /** Names that cannot be looked up now leave everything as it was. */
  private async look(): Promise<void> {
    try {
      this.found = (await Promise.all(this.addresses.split(',').map(peersAt))).flat();
    } catch {
      // The next transfer looks again.
    }
    this.lookedAtMs = performance.now();
    this.looking = undefined;
  }
}

const keyOf = ({ host, port }: BytePeer): string => `${host} ${port}`;

async function peersAt(address: string): Promise<BytePeer[]> {
  const colon = address.lastIndexOf(':');
  const name = address.slice(0, colon).replace(/^\[(.*)\]$/, '$1');
  const port = Number(address.slice(colon + 1));
  if (isIP(name) !== 0) return [{ host: name, port }];
  return (await lookup(name, { all: true })).map(({ address: host }) => ({ host, port, servername: name }));
}
