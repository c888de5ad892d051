import { setTimeout as delay } from 'node:timers/promises';
import { Kafka as KafkaJs, logLevel, type Admin, type SASLOptions } from 'kafkajs';
import RequestQueue from 'kafkajs/src/network/requestQueue';
import type { Logger } from '../logger';
import type { BrokerOptions, KafkaSasl } from './broker-options';
import { GroupMember, type GroupOptions, type Member } from './group-member';
import { closeWithTimeout, kafkajsRetry } from './kafkajs-options';
import { kafkaLogWriter } from './log';
import type { PartitionRange } from './messages';
import { openSender, type Sender } from './sender';
import { connectToBroker } from './socket';

/** A Kafka cluster, through kafkajs, which only this room knows. Connects when it is first used. */
export interface Kafka {
  openSender(): Promise<Sender>;
  joinGroup(options: GroupOptions): Member;
  /** The given topics that the broker does not have. */
  missingTopics(topics: readonly string[]): Promise<string[]>;
  /** Creates the missing ones, and returns their names. The broker's defaults apply to replication and retention. */
  createTopics(topics: readonly string[], partitions: number): Promise<string[]>;
  ranges(topics: readonly string[]): Promise<PartitionRange[]>;
}

const connectionTimeoutMs = 3_000;
const requestTimeoutMs = 10_000;
const topicPollMs = 50;

// After each response kafkajs sets a timer to look for pending requests, even if there are none, and then with a
// negative delay, of which Node warns since 24. Nothing needs the timer then: a request that becomes pending sets it.
const scheduleCheck = Object.getOwnPropertyDescriptor(RequestQueue.prototype, 'scheduleCheckPendingRequests')!
  .value as () => void;
RequestQueue.prototype.scheduleCheckPendingRequests = function (this: RequestQueue) {
  if (this.pending.length > 0) scheduleCheck.call(this);
};

export function openKafka(options: BrokerOptions & { clientId: string; log: Logger }): Kafka {
  const { brokers, sasl, tls, clientId, log } = options;
  const client = new KafkaJs({
    brokers: [...brokers],
    ...(sasl && { sasl: toSaslOptions(sasl) }),
    clientId,
    socketFactory: (to) => connectToBroker({ ...to, ...(tls && { ssl: tls.current() }) }),
    connectionTimeout: connectionTimeoutMs,
    requestTimeout: requestTimeoutMs,
    retry: kafkajsRetry,
    logLevel: logLevel.INFO,
    logCreator: () => kafkaLogWriter(log),
  });
  return {
    openSender: () => openSender(client),
    joinGroup: (group) => new GroupMember(client, group),
    missingTopics: (topics) => missingTopics(client, topics),
    createTopics: (topics, partitions) => createTopics(client, topics, partitions),
    ranges: (topics) => readRanges(client, topics),
  };
}

/** The SASL mechanisms are different types in kafkajs. */
function toSaslOptions({ mechanism, username, password }: KafkaSasl): SASLOptions {
  return { mechanism, username, password };
}

async function withAdmin<T>(client: KafkaJs, work: (admin: Admin) => Promise<T>): Promise<T> {
  const admin = client.admin({ retry: { ...kafkajsRetry, retries: 2 } });
  try {
    await admin.connect();
    return await work(admin);
  } finally {
    await closeWithTimeout(admin.disconnect());
  }
}

function missingTopics(client: KafkaJs, topics: readonly string[]): Promise<string[]> {
  return withAdmin(client, async (admin) => {
    const existing = await admin.listTopics();
    return topics.filter((topic) => !existing.includes(topic));
  });
}

async function createTopics(client: KafkaJs, topics: readonly string[], partitions: number): Promise<string[]> {
  const missing = await missingTopics(client, topics);
  if (missing.length === 0) return [];
  await withAdmin(client, (admin) =>
    admin.createTopics({
      waitForLeaders: false,
      topics: missing.map((topic) => ({ topic, numPartitions: partitions })),
    }),
  );
  // kafkajs's own wait fails when the controller has created them and the broker does not have the metadata yet.
  const deadlineMs = performance.now() + requestTimeoutMs;
  for (;;) {
    const unknown = await missingTopics(client, missing);
    if (unknown.length === 0) return missing;
    if (performance.now() > deadlineMs)
      throw new Error(`Kafka does not list the topics that were created: ${unknown.join(', ')}`);
    await delay(topicPollMs);
  }
}

function readRanges(client: KafkaJs, topics: readonly string[]): Promise<PartitionRange[]> {
  return withAdmin(client, async (admin) => {
    const topicOffsets = await Promise.all(topics.map((topic) => admin.fetchTopicOffsets(topic)));
    return topicOffsets.flatMap((partitions, index) =>
      partitions.map(({ partition, low, high }) => ({
        topic: topics[index]!,
        partition,
        low: BigInt(low),
        high: BigInt(high),
      })),
    );
  });
}
