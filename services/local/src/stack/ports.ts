import { randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { connect, createServer } from 'node:net';

/**
 * Below the ports that systems give to outgoing connections (Linux from 32768, others from 49152). From among those, a
 * client that keeps calling a server which is down would sooner or later get the server's own port, reach itself, and
 * keep the server from coming back.
 */
const lowest = 20_000;
const beyondHighest = 32_000;
const tries = 100;

/**
 * Answers `count` ports of 127.0.0.1 that are free now, and that nobody else who chooses them so gets as long as this
 * process runs. Throws when none are found.
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
 * Takes the UDP port of the same number for as long as this process runs; answers whether it was to be had. Nobody uses
 * it: it keeps others from choosing the TCP port before the program for which it was chosen listens there. They would
 * take each other's services for their own.
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
