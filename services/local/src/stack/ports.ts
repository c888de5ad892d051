import { randomInt } from 'node:crypto';
import { connect, createServer } from 'node:net';

/**
 * Below the ports that systems give to outgoing connections (Linux from 32768, others from 49152). From among those, a
 * client that keeps calling a server which is down would sooner or later get the server's own port, reach itself, and
 * keep the server from coming back.
 */
const lowest = 20_000;
const beyondHighest = 32_000;
const tries = 100;

/** Answers `count` different ports of 127.0.0.1 that are free now. Throws when none are found. */
export async function choosePorts(count: number): Promise<number[]> {
  const ports: number[] = [];
  for (let i = 0; i < tries * count && ports.length < count; i++) {
    const port = randomInt(lowest, beyondHighest);
    if (!ports.includes(port) && (await isFree('127.0.0.1', port))) ports.push(port);
  }
  if (ports.length < count) throw new Error(`No free port between ${lowest} and ${beyondHighest} was found.`);
  return ports;
}

/** Whether one could listen there now. */
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

/** Whether something accepts connections on a port of 127.0.0.1. */
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
