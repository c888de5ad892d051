import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ConfigError } from '../config';
import { renderMetrics } from './metrics';
import { watchProcess } from './process-metrics';

const textFormat = 'text/plain; version=0.0.4; charset=utf-8';

export interface MetricsServer {
  /** host:port, with the port that was really taken. */
  address: string;
  stop(): Promise<void>;
}

/**
 * Answers GET and HEAD of `/metrics` on a port of its own. Who can reach it is a matter of the network: it asks for no key. Throws a
 * ConfigError when it cannot have the port.
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
