import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { serve } from './child';

/** Receives a process's traces by OTLP over HTTP, and discards them. */
let exports = 0;
const server = createServer((request, response) => {
  exports++;
  request.resume().on('end', () => response.end());
});

const calls = {
  start: async () => {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return { endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
  },
  /** The number of exports received. */
  exports: () => exports,
  stop: () => void server.close(),
};

export type CollectorCalls = typeof calls;

serve(calls);
