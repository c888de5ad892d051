import type { Request } from 'express';
import type { GatewayConfig } from '../config';

/** A name or IPv4 address, or an IPv6 address in brackets, perhaps with a port: safe in shells and HTML. */
const safeHost = /^([a-z0-9]([a-z0-9._-]{0,252}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(:\d{1,5})?$/i;

/** The URL at which a gateway that listens on `host` answers programs of the same machine. */
export function localUrl(host: string, port: number): string {
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`;
}

/** PUBLIC_URL, else the address at which the gateway listens: nothing that a request says. */
export const configuredUrl = (
  { socket }: Pick<Request, 'socket'>,
  { PUBLIC_URL, HOST, PORT }: Pick<GatewayConfig, 'PUBLIC_URL' | 'HOST' | 'PORT'>,
): string => PUBLIC_URL ?? localUrl(HOST, socket.localPort ?? PORT);

/**
 * How the client of a request reaches the gateway, for examples: PUBLIC_URL, else what the request says. Forwarded
 * headers count as TRUST_PROXY has it, which Express decides. What a client says is shown to itself alone, and only
 * when it looks like a host.
 */
export function clientUrl(request: Request, config: Pick<GatewayConfig, 'PUBLIC_URL' | 'HOST' | 'PORT'>): string {
  const { host, protocol } = request;
  const isSafe = typeof host === 'string' && safeHost.test(host) && (protocol === 'http' || protocol === 'https');
  return isSafe && config.PUBLIC_URL === undefined ? `${protocol}://${host}` : configuredUrl(request, config);
}
