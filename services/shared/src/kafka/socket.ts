import { connect, isIP, Socket } from 'node:net';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';

const keepAliveDelayMs = 60_000;

/**
 * A connection to a broker for kafkajs. With every attempt that fails, kafkajs lets go of its socket again (`unref`),
 * also when that is gone already; Node then notes each time what to do once it is connected, which it never will be,
 * and warns when that becomes too much. So a socket that is not connected is not let go of.
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
