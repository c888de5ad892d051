import { connect, type Socket } from 'node:net';
import { scramClient, type KafkaCredentials } from './scram';

/** API keys and versions of Kafka's protocol. */
const metadata = [3, 1] as const;
const findCoordinator = [10, 0] as const;
const describeGroups = [15, 0] as const;
const saslHandshake = [17, 1] as const;
const saslAuthenticate = [36, 0] as const;
const answerMaxBytes = 1024 * 1024;

/** The state of a cluster, reported by a broker. */
export interface KafkaCluster {
  /** Number of registered and unfenced brokers. */
  brokers: number;
  /** Id of the controller; -1 while there is none. */
  controller: number;
}

/** A broker on 127.0.0.1 and credentials for it; a broker that requires them closes unauthenticated connections. */
export interface KafkaProbe {
  port: number;
  credentials?: KafkaCredentials | undefined;
  timeoutMs: number;
}

/**
 * Requests a broker's metadata in Kafka's own protocol, without a client library. Throws on a timeout or refused
 * credentials.
 */
export function fetchMetadata(probe: KafkaProbe): Promise<KafkaCluster> {
  return ask(probe, metadata, int32(0), readMetadata);
}

/**
 * Whether the broker coordinates consumer groups. The first request creates the topic for their offsets; until the
 * broker has loaded it, it refuses members of groups. Throws like `fetchMetadata`.
 */
export async function coordinatesGroups(probe: KafkaProbe): Promise<boolean> {
  const group = text('granary-probe');
  const errorOfFind = await ask(probe, findCoordinator, group, (answer) => answer.readInt16BE(4));
  if (errorOfFind !== 0) return false;
  const groups = Buffer.concat([int32(1), group]);
  const errorOfGroup = await ask(probe, describeGroups, groups, (answer) => answer.readInt16BE(8));
  return errorOfGroup === 0;
}

type Request = readonly [key: number, version: number];

/** `read` receives the response from its correlation id on. */
async function ask<T>(probe: KafkaProbe, request: Request, body: Buffer, read: (answer: Buffer) => T): Promise<T> {
  const exchange = open(probe);
  try {
    if (probe.credentials) await authenticate(exchange, probe.credentials);
    const answer = await exchange.send(request, body);
    try {
      return read(answer);
    } catch (error) {
      throw new Error(`What listens on port ${probe.port} is not Kafka.`, { cause: error });
    }
  } finally {
    exchange.close();
  }
}

async function authenticate({ send }: Exchange, credentials: KafkaCredentials): Promise<void> {
  const scram = scramClient(credentials);
  await send(saslHandshake, text('SCRAM-SHA-512'));
  const step = async (message: string): Promise<string> => {
    const answer = await send(saslAuthenticate, bytes(Buffer.from(message)));
    // Error code, error message, SASL payload.
    if (answer.readInt16BE(4) !== 0) throw new Error('Kafka refuses the credentials.');
    const messageBytes = Math.max(0, answer.readInt16BE(6));
    return answer.subarray(8 + messageBytes + 4).toString();
  };
  await step(scram.last(await step(scram.first)));
}

interface Exchange {
  /** A connection with one request at a time. */
  send: (request: Request, body: Buffer) => Promise<Buffer>;
  close: () => void;
}

function open({ port, timeoutMs }: KafkaProbe): Exchange {
  let received = Buffer.alloc(0);
  let waiting: { resolve: (answer: Buffer) => void; reject: (error: Error) => void } | undefined;
  let failure: Error | undefined;
  const fail = (error: Error): void => {
    failure ??= error;
    socket.destroy();
    waiting?.reject(failure);
  };
  const socket: Socket = connect(port, '127.0.0.1')
    .setTimeout(timeoutMs, () => fail(new Error(`Kafka on port ${port} does not respond.`)))
    .on('error', fail)
    .on('end', () => fail(new Error(`Kafka on port ${port} closed the connection.`)))
    .on('data', (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      if (received.length < 4) return;
      const size = received.readInt32BE(0);
      if (size < 0 || size > answerMaxBytes) return fail(new Error(`What listens on port ${port} is not Kafka.`));
      if (received.length < 4 + size) return;
      const answer = received.subarray(4, 4 + size);
      received = received.subarray(4 + size);
      waiting?.resolve(answer);
    });
  return {
    send: ([key, version], body) =>
      new Promise((resolve, reject) => {
        if (failure) return reject(failure);
        waiting = { resolve, reject };
        // API key, version, correlation id, client id.
        const request = Buffer.concat([int16(key), int16(version), int32(1), text('granary'), body]);
        socket.write(Buffer.concat([int32(request.length), request]));
      }),
    close: () => socket.destroy(),
  };
}

function int16(value: number): Buffer {
  const buffer = Buffer.alloc(2);
  buffer.writeInt16BE(value);
  return buffer;
}

function int32(value: number): Buffer {
  const buffer = Buffer.alloc(4);
  buffer.writeInt32BE(value);
  return buffer;
}

function text(value: string): Buffer {
  return Buffer.concat([int16(Buffer.byteLength(value)), Buffer.from(value)]);
}

function bytes(value: Buffer): Buffer {
  return Buffer.concat([int32(value.length), value]);
}

/** Parses a metadata response: correlation id, brokers (node id, host, port, rack), controller id, topics. */
function readMetadata(answer: Buffer): KafkaCluster {
  let offset = 4;
  const nextInt32 = (): number => answer.readInt32BE((offset += 4) - 4);
  const skipText = (): void => {
    const length = answer.readInt16BE(offset);
    offset += 2 + Math.max(0, length);
  };
  const brokers = nextInt32();
  for (let i = 0; i < brokers; i++) {
    nextInt32();
    skipText();
    nextInt32();
    skipText();
  }
  return { brokers, controller: nextInt32() };
}
