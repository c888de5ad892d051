import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { wrongConfig } from '../config';
import { formatHostPort, parseHostPort } from '../host-port';
import { renderMetrics } from './metrics';
import { watchProcess } from './process-metrics';

const textFormat = 'text/plain; version=0.0.4; charset=utf-8';

/** The state of a process, by which `/readyz` answers: 200 when it is ready, 503 otherwise. */
export type Readiness = 'starting' | 'ready' | 'stopping';
/** Must not depend on what the copies of a service share: all would leave their load balancer at once. */
export type ReadinessCheck = () => Readiness | Promise<Readiness>;

interface Answer {
  status: number;
  type: string;
  text: string;
}

const ofProbe = (status: number, text: string): Answer => ({ status, type: 'text/plain; charset=utf-8', text });

const answers = new Map<string, (readiness: ReadinessCheck) => Promise<Answer>>([
  ['/metrics', async () => ({ status: 200, type: textFormat, text: await renderMetrics() })],
  ['/livez', () => Promise.resolve(ofProbe(200, 'alive\n'))],
  [
    '/readyz',
    async (readiness) => {
      const state = await readiness();
      return ofProbe(state === 'ready' ? 200 : 503, `${state}\n`);
    },
  ],
]);

export interface MetricsServer {
  /** host:port, with the actual port where 0 was configured. */
  address: string;
  stop(): Promise<void>;
}

/**
 * Serves `/metrics`, and `/livez` and `/readyz` for the probes of an orchestrator, for GET and HEAD on a port of its
 * own, without authentication: the network decides who reaches it. Throws a ConfigError when the port is not available.
 */
export async function startMetricsServer(
  listen: string,
  readiness: ReadinessCheck = () => 'ready',
): Promise<MetricsServer> {
  const server = createServer({ maxHeaderSize: 8 * 1024, requestTimeout: 10_000 }, (request, response) => {
    const { method } = request;
    const answer = answers.get(request.url?.split('?')[0] ?? '');
    if (answer === undefined) {
      response.writeHead(404).end();
      return;
    }
    if (method !== 'GET' && method !== 'HEAD') {
      response.writeHead(405, { Allow: 'GET, HEAD' }).end();
      return;
    }
    answer(readiness).then(
      ({ status, type, text }) => {
        const headers = { 'Content-Type': type, 'Content-Length': Buffer.byteLength(text) };
        response.writeHead(status, headers).end(method === 'HEAD' ? undefined : text);
      },
      () => response.destroy(),
    );
  });
  const { host, port } = parseHostPort(listen);
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      reject(wrongConfig([['METRICS_LISTEN', `${listen} cannot be taken (${error.code})`]])),
    );
    server.listen(port, host, resolve);
  });
  const unwatch = watchProcess();
  return {
    address: formatHostPort({ host, port: (server.address() as AddressInfo).port }),
    stop: async () => {
      unwatch();
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
}
