import { connect } from 'node:net';

/** Requests of Kafka's protocol: key and version. */
const metadata = [3, 1] as const;
const findCoordinator = [10, 0] as const;
const describeGroups = [15, 0] as const;
const answerMaxBytes = 1024 * 1024;

/** What a broker says of its cluster. */
export interface KafkaCluster {
  /** Number of brokers that are registered and not fenced. */
  brokers: number;
  /** Id of the node that is controller; -1 while there is none. */
  controller: number;
}

/**
 * Asks the broker on a port of 127.0.0.1 for its metadata, in Kafka's own protocol and without a client of it. Throws
 * when there is no answer within `timeoutMs`.
 */
export function askKafka(port: number, timeoutMs: number): Promise<KafkaCluster> {
  return ask(port, timeoutMs, metadata, int32(0), readMetadata);
}

/**
 * Whether the broker coordinates groups of consumers. When it is asked for the first time it makes the topic for that,
 * and until it has read it members of groups are turned away. Throws like `askKafka`.
 */
export async function coordinatesGroups(port: number, timeoutMs: number): Promise<boolean> {
  const group = text('granary-probe');
  const errorOfFind = await ask(port, timeoutMs, findCoordinator, group, (answer) => answer.readInt16BE(4));
  if (errorOfFind !== 0) return false;
  const groups = Buffer.concat([int32(1), group]);
  const errorOfGroup = await ask(port, timeoutMs, describeGroups, groups, (answer) => answer.readInt16BE(8));
  return errorOfGroup === 0;
}

/** `read` gets the answer from its correlation id on. */
function ask<T>(
  port: number,
  timeoutMs: number,
  [key, version]: readonly [number, number],
  body: Buffer,
  read: (answer: Buffer) => T,
): Promise<T> {
  return new Promise((resolve, reject) => {
    // Key, version, correlation id, client id.
    const request = Buffer.concat([int16(key), int16(version), int32(1), text('granary'), body]);
    const socket = connect(port, '127.0.0.1', () => socket.write(Buffer.concat([int32(request.length), request])));
    let received = Buffer.alloc(0);
    const fail = (error: Error): void => {
      socket.destroy();
      reject(error);
    };
    socket
      .setTimeout(timeoutMs, () => fail(new Error(`Kafka on port ${port} gives no answer.`)))
      .on('error', fail)
      .on('end', () => fail(new Error(`Kafka on port ${port} has hung up.`)))
      .on('data', (chunk: Buffer) => {
        received = Buffer.concat([received, chunk]);
        if (received.length < 4) return;
        const size = received.readInt32BE(0);
        if (size < 0 || size > answerMaxBytes) return fail(new Error(`What listens on port ${port} is not Kafka.`));
        if (received.length < 4 + size) return;
        socket.destroy();
        try {
          resolve(read(received.subarray(4, 4 + size)));
        } catch (error) {
          reject(new Error(`What listens on port ${port} is not Kafka.`, { cause: error }));
        }
      });
  });
}

function int16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeInt16BE(value);
  return bytes;
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

function text(value: string): Buffer {
  return Buffer.concat([int16(Buffer.byteLength(value)), Buffer.from(value)]);
}

/** Correlation id, brokers (node id, host, port, rack), controller id, topics. */
function readMetadata(answer: Buffer): KafkaCluster {
  let at = 4;
  const nextInt32 = (): number => answer.readInt32BE((at += 4) - 4);
  const skipText = (): void => {
    const length = answer.readInt16BE(at);
    at += 2 + Math.max(0, length);
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
