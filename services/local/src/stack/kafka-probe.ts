import { connect } from 'node:net';

const metadataKey = 3;
const metadataVersion = 1;
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
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(metadataRequest()));
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
          resolve(readMetadata(received.subarray(4, 4 + size)));
        } catch (error) {
          reject(new Error(`What listens on port ${port} is not Kafka.`, { cause: error }));
        }
      });
  });
}

/** Length, then: key, version, correlation id, client id, and an empty list of topics. */
function metadataRequest(): Buffer {
  const client = Buffer.from('granary');
  const request = Buffer.alloc(4 + 2 + 2 + 4 + 2 + client.length + 4);
  request.writeInt32BE(request.length - 4, 0);
  request.writeInt16BE(metadataKey, 4);
  request.writeInt16BE(metadataVersion, 6);
  request.writeInt32BE(1, 8);
  request.writeInt16BE(client.length, 12);
  client.copy(request, 14);
  return request;
}

/** Correlation id, brokers (node id, host, port, rack), controller id, topics. */
function readMetadata(answer: Buffer): KafkaCluster {
  let at = 4;
  const int32 = (): number => answer.readInt32BE((at += 4) - 4);
  const skipText = (): void => {
    const length = answer.readInt16BE(at);
    at += 2 + Math.max(0, length);
  };
  const brokers = int32();
  for (let i = 0; i < brokers; i++) {
    int32();
    skipText();
    int32();
    skipText();
  }
  return { brokers, controller: int32() };
}
