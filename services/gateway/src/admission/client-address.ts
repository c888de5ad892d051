import type { Request } from 'express';

/**
 * The key under which a client is counted for its limits: its IPv4 address, or the /64 network of its IPv6 address,
 * which is what a single client is usually given.
 */
export function addressKey(address: string): string {
  if (!address.includes(':')) return address;
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address);
  if (mapped) return mapped[1]!;
  const [head = '', tail] = address.split('%', 1)[0]!.split('::');
  const groups = head === '' ? [] : head.split(':');
  if (tail !== undefined) {
    const last = tail === '' ? [] : tail.split(':');
    while (groups.length + last.length < 8) groups.push('0');
    groups.push(...last);
  }
  const network = groups.slice(0, 4).map((group) => Number.parseInt(group, 16).toString(16));
  return `${network.join(':')}::/64`;
}

/** The key of the client's address, as `TRUST_PROXY` has it found. */
export function clientAddress(trustProxy: unknown): (request: Request) => string {
  // Without a trusted proxy Express would read the headers of others only to ignore them.
  if (trustProxy === false) return (request) => addressKey(request.socket.remoteAddress ?? '');
  return (request) => addressKey(request.ip ?? '');
}
