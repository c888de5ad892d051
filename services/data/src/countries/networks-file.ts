import type { Task } from '@granary/shared/concurrency/time-slicing';
import { StartError } from '@granary/shared/start-error';
import { lastOf, parseNetwork } from '../values/network';

/** Addresses of one family that lie in one country, from `first` to `last`. */
export interface CountryRange {
  family: 4 | 6;
  first: bigint;
  last: bigint;
  country: string;
}

interface CountryNetwork extends CountryRange {
  prefixLength: number;
}

/** Lines between two breaks. */
const linesPerStep = 200;
const linePattern = /^"?([0-9A-Fa-f.:/]+)"?\s*,\s*"?([A-Za-z]{2})"?\s*$/;

/**
 * The ranges of a CSV file of networks and countries, in the order of their addresses: `network,country` on each line,
 * the first may be a heading. Where networks lie in one another the longest prefix counts, and of one network the last
 * line. Throws a StartError that names the line.
 */
export function* readNetworksFile(text: string): Task<CountryRange[]> {
  const networks: CountryNetwork[] = [];
  const lines = text.split('\n');
  for (const [index, line] of lines.entries()) {
    if (index % linesPerStep === 0) yield;
    const content = line.trim().replace(/^\ufeff/, '');
    if (content === '' || content.startsWith('#') || (index === 0 && /^"?network"?\s*,/i.test(content))) continue;
    networks.push(networkOfLine(content, index + 1));
  }
  yield;
  networks.sort(byAddress);
  yield;
  return yield* disjoint(networks);
}

function networkOfLine(line: string, number: number): CountryNetwork {
  const [, address = '', country = ''] = linePattern.exec(line) ?? [];
  const network = parseNetwork(address);
  if (!network) {
    throw new StartError(
      `COUNTRY_NETWORKS_FILE: line ${number} is not "network,country", such as 192.0.2.0/24,DE: ${line.slice(0, 100)}`,
    );
  }
  return { ...network, last: lastOf(network), country: country.toUpperCase() };
}

/** A network before those that lie in it. The sort is stable. */
function byAddress(a: CountryNetwork, b: CountryNetwork): number {
  if (a.family !== b.family) return a.family - b.family;
  if (a.first !== b.first) return a.first < b.first ? -1 : 1;
  return a.prefixLength - b.prefixLength;
}

/** Cuts out of each network those that lie in it. */
function* disjoint(networks: readonly CountryNetwork[]): Task<CountryRange[]> {
  const ranges = new Ranges();
  for (const [index, network] of networks.entries()) {
    if (index % linesPerStep === 0) yield;
    ranges.open(network);
  }
  return ranges.end();
}

class Ranges {
  readonly #ranges: CountryRange[] = [];
  /** The networks that the present place lies in, the longest prefix last. */
  readonly #open: CountryNetwork[] = [];
  #next = 0n;

  open(network: CountryNetwork): void {
    for (let inner = this.#open.at(-1); inner && !contains(inner, network); inner = this.#open.at(-1)) this.#close();
    const outer = this.#open.at(-1);
    if (outer) this.#add(outer, network.first - 1n);
    this.#next = network.first;
    this.#open.push(network);
  }

  end(): CountryRange[] {
    while (this.#open.length > 0) this.#close();
    return this.#ranges;
  }

  #close(): void {
    const inner = this.#open.pop()!;
    this.#add(inner, inner.last);
  }

  /** The addresses from the present place up to one are in the country of a network. */
  #add({ family, country }: CountryNetwork, last: bigint): void {
    if (last < this.#next) return;
    const before = this.#ranges.at(-1);
    if (before?.family === family && before.country === country && before.last === this.#next - 1n) before.last = last;
    else this.#ranges.push({ family, first: this.#next, last, country });
    this.#next = last + 1n;
  }
}

const contains = (outer: CountryNetwork, inner: CountryNetwork): boolean =>
  outer.family === inner.family && inner.first <= outer.last;
