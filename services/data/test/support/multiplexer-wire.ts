import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export interface Wire {
  /** The given URL, with the wire's address. */
  url: string;
  /** What Postgres has sent since `record` was called. */
  recorded: Buffer[];
  record(): void;
  /** From now on what Postgres sends arrives byte by byte. */
  split(): void;
  /** From now on nothing arrives any more, while the connections stay open; new ones are not concerned. */
  freeze(): void;
  /** Cuts all connections. */
  cut(): void;
  /** How often somebody has connected. */
  connections(): number;
  stop(): Promise<void>;
}

/** Stands between a client and Postgres and does to the answers what networks do. */
export async function startWire(target: string, port = 0): Promise<Wire> {
  const upstreamAddress = new URL(target);
  const pairs = new Set<{ client: Socket; upstream: Socket; isFrozen: boolean }>();
  const recorded: Buffer[] = [];
  let isRecording = false;
  let isSplit = false;
  let connections = 0;
  const server = createServer((client) => {
    connections++;
    const upstream = connect(Number(upstreamAddress.port), upstreamAddress.hostname);
    const pair = { client, upstream, isFrozen: false };
    pairs.add(pair);
    let before = Promise.resolve();
    const end = () => {
      pairs.delete(pair);
      client.destroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) {
      socket.setNoDelay(true);
      socket.on('error', end);
    }
    client.on('close', end);
    // What Postgres has said before it closes arrives.
    upstream.on('close', () => void before.then(() => client.end()));
    client.on('data', (chunk) => pair.isFrozen || upstream.write(chunk));
    upstream.on('data', (chunk) => {
      if (isRecording) recorded.push(chunk);
      before = before.then(async () => {
        const pieces = isSplit ? [...chunk].map((byte) => Buffer.from([byte])) : [chunk];
        for (const piece of pieces) {
          if (pair.isFrozen) return;
          client.write(piece);
          if (isSplit) await new Promise((resolve) => setImmediate(resolve));
        }
      });
    });
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const cut = () => pairs.forEach(({ client }) => client.destroy());
  return {
    url: Object.assign(new URL(target), { host: `127.0.0.1:${(server.address() as AddressInfo).port}` }).href,
    recorded,
    record: () => void (isRecording = true),
    split: () => void (isSplit = true),
    freeze: () => pairs.forEach((pair) => (pair.isFrozen = true)),
    cut,
    connections: () => connections,
    stop: async () => {
      cut();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
