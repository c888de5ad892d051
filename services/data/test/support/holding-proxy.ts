import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export interface HoldingProxy {
  url: string;
  /** Holds the next transaction that is sent in one round trip, and disconnects its client. */
  holdTransaction(): void;
  /** Holds the next answer to a COMMIT; resolves when it has arrived. */
  holdAnswerOfCommit(): Promise<void>;
  /** Passes on what was held; resolves to the next answer of Postgres. */
  release(): Promise<string>;
  stop(): Promise<void>;
}

/** A proxy in front of Postgres that can hold back what it passes on. */
export async function startHoldingProxy(target: string): Promise<HoldingProxy> {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let armed: 'transaction' | 'answer' | undefined;
  let onHeld = () => {};
  let held: { upstream: Socket; to: Socket; bytes: Buffer } | undefined;
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    for (const socket of [client, upstream]) {
      socket.setNoDelay(true);
      sockets.add(socket);
      socket.on('error', () => {});
    }
    const hold = (to: Socket, bytes: Buffer) => {
      armed = undefined;
      held = { upstream, to, bytes };
      onHeld();
    };
    client.on('data', (chunk) => {
      const isWhole = chunk.includes('begin isolation') && chunk.includes('\0commit\0');
      if (armed !== 'transaction' || !isWhole) return upstream.write(chunk);
      hold(upstream, chunk);
      return client.destroy();
    });
    upstream.on('data', (chunk) =>
      armed === 'answer' && chunk.includes('COMMIT\0') ? hold(client, chunk) : client.write(chunk),
    );
    client.on('close', () => held?.upstream === upstream || upstream.destroy());
    upstream.on('close', () => client.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: Object.assign(new URL(target), { host: `127.0.0.1:${(server.address() as AddressInfo).port}` }).href,
    holdTransaction: () => (armed = 'transaction'),
    holdAnswerOfCommit: () => {
      armed = 'answer';
      return new Promise((resolve) => (onHeld = resolve));
    },
    release: () => {
      const { upstream, to, bytes } = held!;
      held = undefined;
      to.write(bytes);
      return new Promise<string>((resolve) => upstream.once('data', (chunk) => resolve(chunk.toString())));
    },
    stop: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
