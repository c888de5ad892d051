import { Socket, type OnReadOpts, type SocketConstructorOpts } from 'node:net';
import type pg from 'pg';

const readBytes = 128 * 1024;

type Received = (bytes: Buffer) => void;

/** The receivers of sockets that were taken over. */
const receivers = new WeakMap<Socket, Received>();

/**
 * A socket that always reads into the same buffer. Node's default, a new buffer of 64 KiB for each read, takes a fifth
 * of the CPU time of a page. Until it is taken over, it emits copies as 'data', like any other socket.
 */
export function createSocket(): Socket {
  const onread: OnReadOpts = {
    buffer: Buffer.allocUnsafeSlow(readBytes),
    callback: (count, buffer) => {
      const bytes = (buffer as Buffer).subarray(0, count);
      const receiver = receivers.get(socket);
      if (receiver) receiver(bytes);
      else socket.emit('data', Buffer.from(bytes));
      return true;
    },
  };
  const socket: Socket = new Socket({ onread } as SocketConstructorOpts);
  return socket;
}

/**
 * The socket of a connected client. It is not part of `pg`'s documented interface, so it is checked, and a release of
 * `pg` that keeps it elsewhere fails at the first connection. With TLS it is not the socket that the client was given.
 */
export function socketOf(client: pg.Client): Socket {
  const socket = (client as unknown as { connection?: { stream?: unknown } }).connection?.stream;
  if (!(socket instanceof Socket) || socket.listenerCount('data') !== 1) {
    throw new Error('this release of pg does not keep its socket where the multiplexer expects it');
  }
  return socket;
}

/**
 * From now on `received` gets the bytes of the socket, which are only valid during the call. This is safe because `pg`
 * reads only in its one listener for 'data', which is removed, writes nothing by itself, and is only used to end the
 * connection. It has read the ReadyForQuery of its start, after which Postgres sends nothing unrequested but notices;
 * if `pg` had read a part of one, the first statement would fail. Its other listeners ('error', 'close') remain, so
 * that it notices the end of the socket.
 */
export function takeOver(socket: Socket, received: Received): void {
  socket.removeAllListeners('data');
  socket.on('data', received);
  receivers.set(socket, received);
}
