import { isIPv4, isIPv6 } from 'node:net';

/** An IPv4 or IPv6 network in CIDR notation; an address is a network of one. */
export interface Network {
  family: 4 | 6;
  /** Its first address as a number. */
  first: bigint;
  prefixLength: number;
}

const bitsOf = (family: 4 | 6): number => (family === 4 ? 32 : 128);
/** Bits of an IPv6 address before the IPv4 address that it maps (RFC 4291, 2.5.5.2). */
const mappedBits = 96;
const mappedHead = 0xffffn;

/**
 * The network that text means, undefined for any other text. Bits after the prefix are ignored. An IPv4-mapped IPv6
 * network is the IPv4 network.
 */
export function parseNetwork(text: string): Network | undefined {
  const slash = text.indexOf('/');
  const address = parseAddress(slash < 0 ? text : text.slice(0, slash));
  if (!address) return undefined;
  const bits = bitsOf(address.family);
  const length = slash < 0 ? String(bits) : text.slice(slash + 1);
  if (!/^(?:0|[1-9]\d{0,2})$/.test(length) || Number(length) > bits) return undefined;
  return unmapped({ ...address, prefixLength: Number(length) });
}

function unmapped({ family, first, prefixLength }: Network): Network {
  if (family === 6 && prefixLength >= mappedBits && first >> 32n === mappedHead) {
    return masked(4, first & 0xffffffffn, prefixLength - mappedBits);
  }
  return masked(family, first, prefixLength);
}

function masked(family: 4 | 6, address: bigint, prefixLength: number): Network {
  const free = BigInt(bitsOf(family) - prefixLength);
  return { family, first: (address >> free) << free, prefixLength };
}

/** Four decimal octets without leading zeros, or RFC 4291 text without a zone. */
function parseAddress(text: string): { family: 4 | 6; first: bigint } | undefined {
  if (isIPv4(text)) return { family: 4, first: ipv4Number(text) };
  if (!isIPv6(text) || text.includes('%')) return undefined;
  const [head = '', tail] = text.split('::');
  const [before, after] = [groupsOf(head), groupsOf(tail ?? '')];
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => 0n);
  const groups = [...before, ...zeros, ...after];
  return { family: 6, first: groups.reduce((number, group) => (number << 16n) | group, 0n) };
}

/** Groups of 16 bits; an IPv4 address at the end is two of them. */
function groupsOf(text: string): bigint[] {
  if (text === '') return [];
  return text.split(':').flatMap((group) => {
    if (!group.includes('.')) return [BigInt(`0x${group}`)];
    const number = ipv4Number(group);
    return [number >> 16n, number & 0xffffn];
  });
}

const ipv4Number = (text: string): bigint =>
  text.split('.').reduce((number, octet) => (number << 8n) | BigInt(octet), 0n);

/** An address as text that Postgres reads. */
export function addressText(family: 4 | 6, address: bigint): string {
  const [parts, bits] = family === 4 ? [4, 8n] : [8, 16n];
  const numbers = Array.from(
    { length: parts },
    (_, index) => (address >> (bits * BigInt(parts - 1 - index))) & ((1n << bits) - 1n),
  );
  return numbers.map((number) => number.toString(family === 4 ? 10 : 16)).join(family === 4 ? '.' : ':');
}

/** A network as text that Postgres reads. */
export const networkText = ({ family, first, prefixLength }: Network): string =>
  `${addressText(family, first)}/${prefixLength}`;

/** The last address of a network as a number. */
export const lastOf = ({ family, first, prefixLength }: Network): bigint =>
  first + (1n << BigInt(bitsOf(family) - prefixLength)) - 1n;

/** Networks whose prefixes are looked for, at most. */
const prefixedMax = 32;
/** The beginnings of the texts of IPv4-mapped addresses, whose first 80 bits are zero. */
const mappedPrefixes = ['0', ':'];

/**
 * Returns the prefixes with which the texts of addresses in some networks begin: for each IPv4 network its whole
 * octets, which have one spelling. Undefined where the prefixes would not narrow much: for IPv6, which has many
 * spellings, for IPv4 networks of less than an octet, and for many networks.
 */
export function addressPrefixes(networks: readonly string[]): string[] | undefined {
  if (networks.length > prefixedMax) return undefined;
  const prefixes = new Set(mappedPrefixes);
  for (const text of networks) {
    const network = parseNetwork(text);
    const octets = Math.floor((network?.prefixLength ?? 0) / 8);
    if (network?.family !== 4 || octets === 0) return undefined;
    const whole = addressText(4, network.first).split('.').slice(0, octets).join('.');
    prefixes.add(octets === 4 ? whole : `${whole}.`);
  }
  return [...prefixes];
}

/**
 * Networks whose addresses mean something only on a host, a link or a private network. The documentation of the API has
 * the same list.
 */
export const localNetworks: readonly string[] = [
  // This host on this network, the unspecified address among them: RFC 1122, 3.2.1.3
  '0.0.0.0/8',
  // Private: RFC 1918
  '10.0.0.0/8',
  '172.16.0.0/12',
  '192.168.0.0/16',
  // Shared address space: RFC 6598
  '100.64.0.0/10',
  // Loopback: RFC 1122, 3.2.1.3
  '127.0.0.0/8',
  // Link-local: RFC 3927
  '169.254.0.0/16',
  // Limited broadcast: RFC 919
  '255.255.255.255/32',
  // Unspecified and loopback: RFC 4291, 2.5.2 and 2.5.3
  '::/128',
  '::1/128',
  // Unique local: RFC 4193
  'fc00::/7',
  // Link-local: RFC 4291, 2.5.6
  'fe80::/10',
  // Site-local, deprecated: RFC 3879
  'fec0::/10',
];
