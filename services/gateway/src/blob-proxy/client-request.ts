import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

/** The options of agents whose connections are kept, for less time than a listener of the blobs service keeps them. */
export const pooledConnections = { keepAlive: true, maxSockets: 1_024, timeout: 30_000 };

/** A network may drop what is sent to a copy that is gone, so that a connection to it is never refused. */
const connectTimeoutMs = 2_000;

/**
 * Destroys a request that takes too long to connect, or whose connection is idle for `idleTimeoutMs`, then with the
 * error of `onSilent`. Its errors are to be handled where the response is awaited; later ones are ignored.
 */
export function limitSilence(request: ClientRequest, idleTimeoutMs: number, onSilent: () => Error): void {
  request.once('socket', (socket) => limitConnecting(request, socket));
  request.setTimeout(idleTimeoutMs, () => request.destroy(onSilent()));
  request.on('error', () => {});
}

function limitConnecting(request: ClientRequest, socket: Socket): void {
  if (!socket.connecting) return;
  const timer = setTimeout(() => request.destroy(new Error('the connection took too long')), connectTimeoutMs);
  const end = () => clearTimeout(timer);
  socket.once('connect', end).once('close', end);
}

export function responseOf(request: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.once('response', resolve).once('error', reject);
    request.once('close', () => reject(new Error('the connection was closed before the answer')));
  });
}
