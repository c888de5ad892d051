import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ConfigError } from '../config';
import { renderMetrics } from './metrics';
import { watchProcess } from './process-metrics';

const textFormat = 'text/plain; version=0.0.4; charset=utf-8';

export interface MetricsServer {
  /** host:port, with the actual port where 0 was configured. */
  address: string;
  stop(): Promise<void>;
}

/**
 * Serves `/metrics` for GET and HEAD on a port of its own, without authentication: the network decides who reaches it.
 * Throws a ConfigError when the port is not available.
 */
export async function startMetricsServer(listen: string): Promise<MetricsServer> {
  const server = createServer({ maxHeaderSize: 8 * 1024, requestTimeout: 10_000 }, (request, response) => {
    const { method } = request;
    if (request.url?.split('?')[0] !== '/metrics') {
      response.writeHead(404).end();
      return;
    }
    if (method !== 'GET' && method !== 'HEAD') {
      response.writeHead(405, { Allow: 'GET, HEAD' }).end();
      return;
    }
    renderMetrics().then(
      (text) => {
        const headers = { 'Content-Type': textFormat, 'Content-Length': Buffer.byteLength(text) };
        response.writeHead(200, headers).end(method === 'HEAD' ? undefined : text);
      },
      () => response.destroy(),
    );
  });
  const colon = listen.lastIndexOf(':');
  const host = listen.slice(0, colon);
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      reject(
        new ConfigError(`The configuration is wrong:\n  METRICS_LISTEN: ${listen} cannot be taken (${error.code})`),
      ),
    );
    server.listen(Number(listen.slice(colon + 1)), host, resolve);
  });
  const unwatch = watchProcess();
  return {
    address: `${host}:${(server.address() as AddressInfo).port}`,
    stop: async () => {
      unwatch();
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
}
