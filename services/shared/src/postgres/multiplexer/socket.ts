import { Socket, type OnReadOpts, type SocketConstructorOpts } from 'node:net';
import type pg from 'pg';

const readBytes = 128 * 1024;

type Received = (bytes: Buffer) => void;

/** Who gets the bytes of a socket that has been taken over, straight from its buffer. */
const takers = new WeakMap<Socket, Received>();

/**
 * A socket that reads into one and the same buffer. Node's usual way, a new buffer of 64 KiB for each read, takes a
 * fifth of Node's time for a page. As long as nobody has taken it over, it hands out copies as 'data', like any other.
 */
export function createSocket(): Socket {
  const onread: OnReadOpts = {
    buffer: Buffer.allocUnsafeSlow(readBytes),
    callback: (count, buffer) => {
      const bytes = (buffer as Buffer).subarray(0, count);
      const taker = takers.get(socket);
      if (taker) taker(bytes);
      else socket.emit('data', Buffer.from(bytes));
      return true;
    },
  };
  const socket: Socket = new Socket({ onread } as SocketConstructorOpts);
  return socket;
}

/**
 * The socket of a client that has connected. It is not part of `pg`'s documented interface, but the only thing of it
 * that is needed: so it is looked at closely, and a release of `pg` that keeps it elsewhere is refused at the first
 * connection. With TLS it is another than the one that the client was given.
 */
export function socketOf(client: pg.Client): Socket {
  const socket = (client as unknown as { connection?: { stream?: unknown } }).connection?.stream;
  if (!(socket instanceof Socket) || socket.listenerCount('data') !== 1) {
    throw new Error('this release of pg does not keep its socket where the lane looks for it');
  }
  return socket;
}

/**
 * From now on the bytes of the socket go to `received`, and are only valid during the call. This is safe because all
 * that `pg` does with them it does in its one listener for 'data', which goes; it sends nothing by itself, and is asked
 * for nothing any more but to say goodbye; it has got the ReadyForQuery of its start, after which Postgres sends
 * nothing unasked but notices, and had `pg` read one of these by half, the exchange that must follow would come out
 * wrong. Its other listeners ('error', 'close') stay: it must know when the socket is gone.
 */
export function takeOver(socket: Socket, received: Received): void {
  socket.removeAllListeners('data');
  socket.on('data', received);
  takers.set(socket, received);
}
