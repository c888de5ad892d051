import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

/**
 * The fate of a connection when COMMIT passes: it is kept, cut before Postgres gets the COMMIT, or cut after Postgres
 * has answered and before the client hears of it.
 */
export type CommitFate = 'pass' | 'cut before' | 'cut after';

export interface PostgresProxy {
  /** The given URL, with the proxy's address. */
  url: string;
  /** Nothing passes any more, on connections that are open and on new ones, until `thaw`. */
  freeze(): void;
  thaw(): void;
  stop(): Promise<void>;
}

/** Stands between a client and Postgres, reads the messages of the client, and cuts connections at COMMIT. */
export async function startPostgresProxy(target: string, fateOfCommit: () => CommitFate): Promise<PostgresProxy> {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let frozen = false;
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    let cutAtAnswer = false;
    const cut = () => {
      client.destroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) {
      // Otherwise every statement waits 40 ms for an acknowledgement that is itself delayed.
      socket.setNoDelay(true);
      sockets.add(socket);
      socket.on('error', cut);
      socket.on('close', () => {
        sockets.delete(socket);
        cut();
      });
    }
    const messages = clientMessages((message) => {
      const fate = isCommit(message) ? fateOfCommit() : 'pass';
      if (fate === 'cut before') return cut();
      if (fate === 'cut after') cutAtAnswer = true;
      upstream.write(message);
    });
    client.on('data', messages);
    upstream.on('data', (chunk) => (cutAtAnswer ? cut() : client.write(chunk)));
    if (frozen) for (const socket of [client, upstream]) socket.pause();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: Object.assign(new URL(target), { host: `127.0.0.1:${(server.address() as AddressInfo).port}` }).href,
    freeze: () => {
      frozen = true;
      for (const socket of sockets) socket.pause();
    },
    thaw: () => {
      frozen = false;
      for (const socket of sockets) socket.resume();
    },
    stop: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** COMMIT as a simple query, or parsed without a name at the end of a pipeline. */
const isCommit = (message: Buffer): boolean =>
  (message[0] === 0x51 && message.subarray(5, -1).toString().toLowerCase() === 'commit') ||
  (message[0] === 0x50 && message.subarray(5, -2).toString().toLowerCase() === '\0commit\0');

/** Cuts the bytes of a client into whole messages: a length after a type byte, but for the first, which has no type. */
function clientMessages(deliver: (message: Buffer) => void): (chunk: Buffer) => void {
  let buffered = Buffer.alloc(0);
  let typed = 0;
  return (chunk) => {
    buffered = Buffer.concat([buffered, chunk]);
    while (buffered.length >= typed + 4) {
      const length = typed + buffered.readInt32BE(typed);
      if (buffered.length < length) return;
      const message = buffered.subarray(0, length);
      buffered = buffered.subarray(length);
      typed = 1;
      deliver(message);
    }
  };
}
