import { randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { connect, createServer } from 'node:net';
import { explainListen, StartError } from '@granary/shared/start-error';

/**
 * Below the ephemeral ports of outgoing connections (Linux from 32768, others from 49152). A client that retries
 * against a stopped server on an ephemeral port would eventually be given that same local port, connect to itself, and
 * block the server's restart.
 */
const lowest = 20_000;
const beyondHighest = 32_000;
const tries = 100;

/**
 * Returns `count` free ports of 127.0.0.1, reserved against other callers of this function while this process runs.
 * Throws if none are found.
 */
export async function choosePorts(count: number): Promise<number[]> {
  const ports: number[] = [];
  for (let i = 0; i < tries * count && ports.length < count; i++) {
    const port = randomInt(lowest, beyondHighest);
    if ((await isFree('127.0.0.1', port)) && (await claim(port))) ports.push(port);
  }
  if (ports.length < count) throw new Error(`No free port between ${lowest} and ${beyondHighest} was found.`);
  return ports;
}

/**
 * Reserves a port by binding the UDP port of the same number while this process runs; returns whether it succeeded.
 * Without it two stacks could choose the same TCP port before their programs listen, and connect to each other's
 * services.
 */
function claim(port: number): Promise<boolean> {
  const socket = createSocket('udp4').unref();
  return new Promise((resolve) => {
    socket
      .once('error', () => {
        socket.close();
        resolve(false);
      })
      .bind({ port, address: '127.0.0.1', exclusive: true }, () => resolve(true));
  });
}

/** Whether the port can be listened on now. */
export async function isFree(host: string, port: number): Promise<boolean> {
  const server = createServer();
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject).listen({ host, port, exclusive: true }, resolve);
    });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') return false;
    throw error;
  }
  await new Promise((resolve) => server.close(resolve));
  return true;
}

/** Throws a StartError if the port cannot be listened on because another program has it. */
export async function requireFree(host: string, port: number): Promise<void> {
  if (!(await isFree(host, port))) throw new StartError(explainListen('EADDRINUSE', host, port));
}

/** Whether a port of 127.0.0.1 accepts connections. */
export function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket
      .once('connect', () => {
        socket.destroy();
        resolve(true);
      })
      .once('error', () => resolve(false));
  });
}
