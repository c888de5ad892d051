import type { Server } from 'node:http';

/** Takes no more, lets what is under way finish, and cuts what is left after `timeoutMs`. */
export async function drainHttp(server: Server, timeoutMs: number): Promise<void> {
  const cutOff = setTimeout(() => server.closeAllConnections(), timeoutMs);
  // A connection becomes idle when its answer is sent, which nothing announces.
  const sweep = setInterval(() => server.closeIdleConnections(), 50);
  await new Promise<void>((resolve) => {
    server.close(() => resolve());
  });
  clearInterval(sweep);
  clearTimeout(cutOff);
}
