import { z } from 'zod';

const one = '(\\[[0-9A-Fa-f:.]+\\]|[^:,/\\s[\\]]+):\\d{1,5}';

/** A name, an IPv4 address, or an IPv6 address in brackets, with a port: `data.internal:5000`, `[::]:5000`. */
export const hostPort = z
  .string()
  .regex(new RegExp(`^${one}$`), 'host:port is expected, with the brackets of an IPv6 address');

/** Several addresses with ports, separated by commas. */
export const hostPorts = z
  .string()
  .regex(
    new RegExp(`^${one}(,${one})*$`),
    'host:port is expected, with the brackets of an IPv6 address, or several with commas between',
  );

export interface HostPort {
  /** The name or address, an IPv6 address without its brackets. */
  host: string;
  port: number;
}

/** The parts of what `hostPort` accepts. */
export function parseHostPort(text: string): HostPort {
  const colon = text.lastIndexOf(':');
  return { host: text.slice(0, colon).replace(/^\[(.*)\]$/, '$1'), port: Number(text.slice(colon + 1)) };
}

/** The inverse of `parseHostPort`. */
export const formatHostPort = ({ host, port }: HostPort): string =>
  `${host.includes(':') ? `[${host}]` : host}:${port}`;
