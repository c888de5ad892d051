import { Agent, request } from 'node:http';
import { connect, type Socket } from 'node:net';

const connectEveryMs = 2;

/** Resolves when the attack is over. */
export function over(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

export interface Flood {
  url: string;
  connections: number;
  /** What each connection sends at once. */
  bytes: (connection: number) => Buffer | string;
  /** Whether what comes back is read: all of it, nothing, or the head of the answer and then nothing. */
  reads: boolean | 'head';
  /** Where its connections come from, one of 127.0.0.0/8; the usual one if absent. */
  from?: (connection: number) => string;
}

/**
 * Keeps so many connections open until the signal aborts: one that is cut is opened again. `onAnswer` gets the status
 * of every answer that is read.
 */
export async function flood(
  { url, connections, bytes, reads, from = () => '127.0.0.1' }: Flood,
  signal: AbortSignal,
  onAnswer: (status: number) => void = () => {},
): Promise<void> {
  const { hostname, port } = new URL(url);
  const open = new Map<number, Socket>();
  const openOne = (connection: number) => {
    const address = { port: Number(port), host: hostname, localAddress: from(connection) };
    const socket = connect(address, () => socket.write(bytes(connection)));
    open.set(connection, socket);
    if (reads) {
      socket.on('data', (chunk: Buffer) => {
        if (reads === 'head') socket.pause();
        for (const [, status] of chunk.toString('latin1').matchAll(/HTTP\/1\.1 (\d{3}) /g)) onAnswer(Number(status));
      });
    } else {
      socket.pause();
    }
    socket.on('error', () => {}).on('close', () => open.delete(connection));
  };
  const opening = setInterval(() => {
    for (let connection = 0, opened = 0; connection < connections && opened < 10; connection += 1) {
      if (open.has(connection)) continue;
      openOne(connection);
      opened += 1;
    }
  }, connectEveryMs);
  await over(signal);
  clearInterval(opening);
  for (const socket of open.values()) socket.destroy();
}

export interface Client {
  path: string;
  headers?: Record<string, string>;
}

/** Lets so many clients send one request after the other until the signal aborts; gives the statuses they got. */
export async function clients(
  url: string,
  count: number,
  next: () => Client,
  signal: AbortSignal,
): Promise<Map<number, number>> {
  const agent = new Agent({ keepAlive: true });
  const statuses = new Map<number, number>();
  const send = () =>
    new Promise<number>((resolve) => {
      const { path, headers = {} } = next();
      const outgoing = request(url + path, { agent, headers }, (response) => {
        response.resume().once('close', () => resolve(response.statusCode!));
      });
      outgoing.once('error', () => resolve(0)).end();
    });
  const loops = Array.from({ length: count }, async () => {
    while (!signal.aborted) {
      const status = await send();
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
  });
  await over(signal);
  agent.destroy();
  await Promise.all(loops);
  return statuses;
}
