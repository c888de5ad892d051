import { connect, isIP, Socket } from 'node:net';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';

const keepAliveDelayMs = 60_000;

/**
 * A connection to a broker for kafkajs. After each failed attempt kafkajs calls `unref` on its socket, also on one that
 * is destroyed; Node then adds a listener for the connection each time, which never fires, and warns of a leak. So
 * `unref` does nothing on a socket that is not connected.
 */
export function connectToBroker(to: {
  host: string;
  port: number;
  ssl?: ConnectionOptions;
  onConnect: () => void;
}): Socket {
  const { host, port, ssl, onConnect } = to;
  const socket = ssl
    ? connectTls({ ...ssl, host, port, ...(isIP(host) === 0 && { servername: host }) }, onConnect)
    : connect({ host, port }, onConnect);
  socket.setKeepAlive(true, keepAliveDelayMs);
  socket.unref = () => (socket.connecting || socket.destroyed ? socket : Socket.prototype.unref.call(socket));
  return socket;
}
