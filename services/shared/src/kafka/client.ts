import { setTimeout as delay } from 'node:timers/promises';
import {
  Kafka as KafkaJs,
  logLevel,
  Partitioners,
  type Consumer,
  type EachBatchPayload,
  type IHeaders,
  type SASLOptions,
} from 'kafkajs';
import RequestQueue from 'kafkajs/src/network/requestQueue';
import type { Logger } from '../logger';
import { kafkaLogWriter } from './log';
import { connectToBroker } from './socket';

/** How clients prove who they are. */
export interface KafkaSasl {
  mechanism: 'plain' | 'scram-sha-256' | 'scram-sha-512';
  username: string;
  password: string;
}

/** Certificates as PEM; without any, those of Node's authorities hold. */
export interface KafkaTls {
  ca?: Buffer;
  cert?: Buffer;
  key?: Buffer;
}

/** Where brokers are, and what they ask of clients. */
export interface BrokerOptions {
  brokers: readonly string[];
  sasl?: KafkaSasl | undefined;
  /** Absent: without TLS. */
  tls?: KafkaTls | undefined;
}

/** A message to send. */
export interface KafkaMessage {
  topic: string;
  /** Messages of one key go to one partition, in the order in which they are sent. */
  key: string;
  value: Buffer;
  headers: Record<string, string>;
}

export interface ReceivedMessage {
  key: string;
  value: Buffer;
  headers: Record<string, string>;
  offset: bigint;
}

/** Where reading goes on in a partition. */
export interface PartitionOffset {
  topic: string;
  partition: number;
  next: bigint;
}

/** The part of a partition that the broker has: from `low`, up to but without `high`. */
export interface PartitionRange {
  topic: string;
  partition: number;
  low: bigint;
  high: bigint;
}

export interface Sender {
  /** Resolves when the broker has all of them. After an error the sender must be closed: nothing is known then. */
  send(messages: readonly KafkaMessage[]): Promise<void>;
  close(): Promise<void>;
}

export interface GroupOptions {
  groupId: string;
  topics: readonly string[];
  /** A batch of one partition is handed over in parts of at most this size. */
  messagesMax: number;
  /** After this time without a sign of life a member's partitions are given to others. */
  sessionTimeoutMs: number;
  /** The places that reading goes on from, whatever the broker remembers. Called for every assignment. */
  loadOffsets: () => Promise<PartitionOffset[]>;
  onJoined: () => void;
  /**
   * Deals with messages of one partition, in order. May take as long as it needs while `isOurs()`; after that it ends
   * soon. False: they were not dealt with, and come again.
   */
  onMessages: (
    messages: readonly ReceivedMessage[],
    from: { topic: string; partition: number },
    isOurs: () => boolean,
  ) => Promise<boolean>;
}

/** A member of a group. */
export interface Member {
  /** Rejects when the client could not begin or has given up: a new member must be made. Never resolves. */
  ended: Promise<never>;
  /** The partitions that it has, undefined before it has joined, each with the place of the next message if known. */
  assignment(): Array<{ topic: string; partition: number; next: bigint | undefined }> | undefined;
  /** When something last happened, by `performance.now()`: an assignment, or messages were dealt with. */
  progressedMs(): number;
  /** Whether messages are being dealt with now. */
  isBusy(): boolean;
  /** Whether any have been dealt with. */
  hasDealt(): boolean;
  stop(): Promise<void>;
}

export interface Kafka {
  openSender(): Promise<Sender>;
  joinGroup(options: GroupOptions): Member;
  /** Those of the topics that the broker does not have. */
  missingTopics(topics: readonly string[]): Promise<string[]>;
  /** Makes those that are missing; answers their names. The broker's defaults hold for replication and retention. */
  createTopics(topics: readonly string[], partitions: number): Promise<string[]>;
  ranges(topics: readonly string[]): Promise<PartitionRange[]>;
}

const connectionTimeoutMs = 3_000;
const requestTimeoutMs = 10_000;
/** How long kafkajs keeps trying by itself, 2 to 3 s; then those who use it say what is wrong and try again. */
const retry = { initialRetryTime: 100, maxRetryTime: 1_000, retries: 5 };
/** The broker may hold a fetch this long; kafkajs gives signs of life between fetches. */
const fetchWaitMs = 500;
/** An event has at most 64 KiB. */
const partitionBytesMax = 1024 * 1024;
/** What a client that hangs may hold up a stop. */
const closeTimeoutMs = 5_000;
const alignRetryMs = 500;
const topicPollMs = 50;

// On every answer kafkajs sets a timer to look for requests that wait, also when none do, and then with a negative time,
// of which Node warns since 24. Without the timer nothing is missed: a request that has to wait sets it.
const scheduleCheck = Object.getOwnPropertyDescriptor(RequestQueue.prototype, 'scheduleCheckPendingRequests')!
  .value as () => void;
RequestQueue.prototype.scheduleCheckPendingRequests = function (this: RequestQueue) {
  if (this.pending.length > 0) scheduleCheck.call(this);
};

/** Kafka, through kafkajs: the only file that knows it. Nothing is connected before something is asked for. */
export function openKafka(options: BrokerOptions & { clientId: string; log: Logger }): Kafka {
  const { sasl, tls } = options;
  const client = new KafkaJs({
    brokers: [...options.brokers],
    ...(sasl && { sasl: toSaslOptions(sasl) }),
    ...(tls && { ssl: { ...tls } }),
    clientId: options.clientId,
    socketFactory: connectToBroker,
    connectionTimeout: connectionTimeoutMs,
    requestTimeout: requestTimeoutMs,
    retry,
    logLevel: logLevel.INFO,
    logCreator: () => kafkaLogWriter(options.log),
  });

  const asAdmin = async <T>(work: (admin: ReturnType<KafkaJs['admin']>) => Promise<T>): Promise<T> => {
    const admin = client.admin({ retry: { ...retry, retries: 2 } });
    try {
      await admin.connect();
      return await work(admin);
    } finally {
      await bounded(admin.disconnect());
    }
  };
  const missingTopics = (topics: readonly string[]) =>
    asAdmin(async (admin) => {
      const there = await admin.listTopics();
      return topics.filter((topic) => !there.includes(topic));
    });

  return {
    openSender: () => openSender(client),
    joinGroup: (group) => joinGroup(client, group),
    missingTopics,
    createTopics: async (topics, partitions) => {
      const missing = await missingTopics(topics);
      if (missing.length === 0) return [];
      await asAdmin((admin) =>
        admin.createTopics({
          waitForLeaders: false,
          topics: missing.map((topic) => ({ topic, numPartitions: partitions })),
        }),
      );
      // kafkajs's own wait fails when the controller has made them and the broker has not heard of it yet.
      const deadlineMs = performance.now() + requestTimeoutMs;
      for (;;) {
        const unheard = await missingTopics(missing);
        if (unheard.length === 0) return missing;
        if (performance.now() > deadlineMs)
          throw new Error(`Kafka does not show the topics it made: ${unheard.join(', ')}`);
        await delay(topicPollMs);
      }
    },
    ranges: (topics) =>
      asAdmin(async (admin) => {
        const found = await Promise.all(topics.map((topic) => admin.fetchTopicOffsets(topic)));
        return found.flatMap((partitions, at) =>
          partitions.map(({ partition, low, high }) => ({
            ...{ topic: topics[at]!, partition },
            low: BigInt(low),
            high: BigInt(high),
          })),
        );
      }),
  };
}

/** kafkajs tells the mechanisms apart by their types. */
function toSaslOptions({ mechanism, username, password }: KafkaSasl): SASLOptions {
  return { mechanism, username, password };
}

async function openSender(client: KafkaJs): Promise<Sender> {
  const producer = client.producer({
    idempotent: true,
    maxInFlightRequests: 1,
    allowAutoTopicCreation: false,
    createPartitioner: Partitioners.DefaultPartitioner,
    retry,
  });
  const close = () => bounded(producer.disconnect());
  try {
    await producer.connect();
  } catch (error) {
    await close();
    throw error;
  }
  return {
    send: async (messages) => {
      const byTopic = new Map<string, Array<Omit<KafkaMessage, 'topic'>>>();
      for (const { topic, ...message } of messages) {
        const list = byTopic.get(topic);
        if (list) list.push(message);
        else byTopic.set(topic, [message]);
      }
      await producer.sendBatch({
        acks: -1,
        topicMessages: [...byTopic].map(([topic, list]) => ({ topic, messages: list })),
      });
    },
    close,
  };
}

function joinGroup(client: KafkaJs, options: GroupOptions): Member {
  const { groupId, topics, sessionTimeoutMs } = options;
  const heartbeatMs = Math.floor(sessionTimeoutMs / 6);
  const consumer = client.consumer({
    groupId,
    sessionTimeout: sessionTimeoutMs,
    rebalanceTimeout: 2 * sessionTimeoutMs,
    heartbeatInterval: heartbeatMs,
    maxWaitTimeInMs: Math.min(fetchWaitMs, heartbeatMs),
    maxBytesPerPartition: partitionBytesMax,
    allowAutoTopicCreation: false,
    // A client that restarts by itself would keep what made it crash; who called makes a new one.
    retry: { ...retry, restartOnFailure: async () => false },
  });
  const member = trackMember(consumer, options);
  const begin = async () => {
    await consumer.connect();
    await consumer.subscribe({ topics: [...topics], fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      eachBatch: (payload) => member.deal(payload, options, heartbeatMs),
    });
  };
  const begun = begin().catch(member.end);
  return {
    ...member,
    stop: async () => {
      // Whoever leaves while it joins is waited for by the others of the group until its session is over.
      await bounded(begun);
      await member.stop();
    },
  };
}

/** What a consumer of kafkajs is doing, from its events. */
function trackMember(consumer: Consumer, { loadOffsets, onJoined }: GroupOptions) {
  let stopped = false;
  let busy = false;
  let dealt = false;
  let assigned: Array<{ topic: string; partition: number; next: bigint | undefined }> | undefined;
  let progressedMs = performance.now();
  let aligned = Promise.resolve();

  // Moves the reading to our own places: the broker's memory may be behind, and ahead when the database was restored.
  const align = async (mine: NonNullable<typeof assigned>) => {
    while (!stopped && assigned === mine) {
      try {
        const places = await loadOffsets();
        for (const each of mine) {
          const known = places.find((place) => place.topic === each.topic && place.partition === each.partition);
          if (!known || stopped || assigned !== mine) continue;
          each.next = known.next;
          consumer.seek({ topic: each.topic, partition: each.partition, offset: known.next.toString() });
        }
        return;
      } catch {
        // The database is away, which those who apply say; messages wait for this.
        await delay(alignRetryMs);
      }
    }
  };

  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    const mine = Object.entries(payload.memberAssignment).flatMap(([topic, partitions]) =>
      partitions.map((partition) => ({ topic, partition, next: undefined })),
    );
    assigned = mine;
    progressedMs = performance.now();
    aligned = align(mine);
    onJoined();
  });
  let end: (error: Error) => void = () => {};
  const ended = new Promise<never>((_, reject) => {
    end = reject;
  });
  ended.catch(() => {});
  consumer.on(consumer.events.CRASH, ({ payload }) => end(payload.error));

  const deal = async (payload: EachBatchPayload, options: GroupOptions, heartbeatMs: number) => {
    const { batch } = payload;
    const { topic, partition } = batch;
    let failure: Error | undefined;
    const beat = () =>
      payload.heartbeat().catch((error: Error) => {
        failure ??= error;
      });
    const beating = setInterval(() => void beat(), heartbeatMs);
    const isOurs = () => !stopped && failure === undefined && payload.isRunning() && !payload.isStale();
    busy = true;
    try {
      await aligned;
      for (let at = 0; at < batch.messages.length && isOurs(); at += options.messagesMax) {
        const messages = batch.messages.slice(at, at + options.messagesMax);
        const received = messages.map(({ key, value, headers, offset }) => ({
          key: key?.toString() ?? '',
          value: value ?? Buffer.alloc(0),
          headers: readHeaders(headers),
          offset: BigInt(offset),
        }));
        if (!(await options.onMessages(received, { topic, partition }, isOurs))) break;
        payload.resolveOffset(messages.at(-1)!.offset);
        const next = received.at(-1)!.offset + 1n;
        progressedMs = performance.now();
        dealt = true;
        const mine = assigned?.find((each) => each.topic === topic && each.partition === partition);
        if (mine) mine.next = next;
        // A hint for whoever looks at the group. A coordinator that does not know us (any more) refuses it; if thrown on,
        // that would end kafkajs's consumer for good. The heartbeat below hears of it too, and then joins again.
        const offsets = { topics: [{ topic, partitions: [{ partition, offset: next.toString() }] }] };
        await payload.commitOffsetsIfNecessary(offsets).catch(() => undefined);
        await beat();
      }
    } finally {
      clearInterval(beating);
      busy = false;
    }
    if (failure !== undefined) throw failure;
  };

  return {
    ended,
    end,
    deal,
    assignment: () => assigned,
    progressedMs: () => progressedMs,
    isBusy: () => busy,
    hasDealt: () => dealt,
    stop: async () => {
      stopped = true;
      await bounded(consumer.disconnect());
    },
  };
}

function readHeaders(headers: IHeaders | undefined): Record<string, string> {
  return Object.fromEntries(Object.entries(headers ?? {}).map(([name, value]) => [name, String(value)]));
}

/** Waits for the end of a client, but not for ever: one that hangs is left behind. */
async function bounded(closing: Promise<void>): Promise<void> {
  const waited = new AbortController();
  await Promise.race([
    closing.catch(() => undefined),
    delay(closeTimeoutMs, undefined, { signal: waited.signal, ref: false }).catch(() => undefined),
  ]);
  waited.abort();
}
