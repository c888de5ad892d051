import { setTimeout as delay } from 'node:timers/promises';
import type {
  Consumer,
  ConsumerGroupJoinEvent,
  EachBatchPayload,
  IHeaders,
  Kafka as KafkaJs,
  KafkaMessage,
} from 'kafkajs';
import { closeWithTimeout, kafkajsRetry } from './kafkajs-options';
import { isSamePartition, type Partition, type PartitionOffset, type ReceivedMessage } from './messages';

export interface GroupOptions {
  groupId: string;
  topics: readonly string[];
  /** A batch of one partition is delivered in parts of at most this size. */
  messagesMax: number;
  /** A member without a heartbeat for this long loses its partitions to others. */
  sessionTimeoutMs: number;
  /** The offsets that reading starts from, whatever the broker has committed. Called for every assignment. */
  loadOffsets: () => Promise<PartitionOffset[]>;
  onJoined: () => void;
  /**
   * Processes messages of one partition, in order. May take any time while `isAssigned()`, and must then end soon.
   * False: they were not processed, and are delivered again.
   */
  onMessages: (messages: readonly ReceivedMessage[], from: Partition, isAssigned: () => boolean) => Promise<boolean>;
}

/** A partition of a member, with the offset of its next message once that is known. */
export interface AssignedPartition extends Partition {
  next: bigint | undefined;
}

/** A member of a consumer group. A member whose client has failed is done; join again for another one. */
export interface Member {
  /** Rejects when the client could not start or has failed. Never resolves. */
  readonly ended: Promise<never>;
  /** The partitions of this member; undefined before it has joined. */
  readonly assignment: readonly AssignedPartition[] | undefined;
  /** The time of the last progress, by `performance.now()`: an assignment, or messages that were processed. */
  readonly progressMs: number;
  /** Whether messages are being processed now. */
  readonly isBusy: boolean;
  /** Whether it has processed any messages. */
  readonly hasProcessed: boolean;
  stop(): Promise<void>;
}

/** How long the broker may hold a fetch; kafkajs sends heartbeats between fetches. */
const fetchWaitMs = 500;
/** An event has at most 64 KiB. */
const partitionBytesMax = 1024 * 1024;
const loadRetryMs = 500;

export class GroupMember implements Member {
  readonly ended: Promise<never>;
  private readonly consumer: Consumer;
  private readonly heartbeatMs: number;
  private readonly starting: Promise<void>;
  private fail!: (error: Error) => void;
  private isStopped = false;
  private isProcessing = false;
  private processedAny = false;
  private assigned: AssignedPartition[] | undefined;
  private lastProgressMs = performance.now();
  /** Settles when the consumer reads from our own offsets. */
  private sought = Promise.resolve();

  constructor(
    client: KafkaJs,
    private readonly options: GroupOptions,
  ) {
    const { groupId, sessionTimeoutMs } = options;
    this.heartbeatMs = Math.floor(sessionTimeoutMs / 6);
    this.ended = new Promise<never>((_, reject) => {
      this.fail = reject;
    });
    this.ended.catch(() => {});
    this.consumer = client.consumer({
      groupId,
      sessionTimeout: sessionTimeoutMs,
      rebalanceTimeout: 2 * sessionTimeoutMs,
      heartbeatInterval: this.heartbeatMs,
      maxWaitTimeInMs: Math.min(fetchWaitMs, this.heartbeatMs),
      maxBytesPerPartition: partitionBytesMax,
      allowAutoTopicCreation: false,
      // A consumer that restarts itself keeps the state that it crashed with; the caller joins with a new one instead.
      retry: { ...kafkajsRetry, restartOnFailure: async () => false },
    });
    this.consumer.on(this.consumer.events.GROUP_JOIN, (event) => this.joined(event));
    this.consumer.on(this.consumer.events.CRASH, ({ payload }) => this.fail(payload.error));
    this.starting = this.start().catch(this.fail);
  }

  get assignment(): readonly AssignedPartition[] | undefined {
    return this.assigned;
  }

  get progressMs(): number {
    return this.lastProgressMs;
  }

  get isBusy(): boolean {
    return this.isProcessing;
  }

  get hasProcessed(): boolean {
    return this.processedAny;
  }

  async stop(): Promise<void> {
    // The group waits for a member that leaves while it joins until its session times out.
    await closeWithTimeout(this.starting);
    this.isStopped = true;
    // During the first join a disconnect has no effect in kafkajs: the client would stay in the group, with partitions
    // whose messages are not processed. So it follows the join, also one that takes longer than this waits.
    await closeWithTimeout(this.starting.then(() => this.consumer.disconnect()));
  }

  private async start(): Promise<void> {
    const { consumer } = this;
    await consumer.connect();
    await consumer.subscribe({ topics: [...this.options.topics], fromBeginning: true });
    if (this.isStopped) return;
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      eachBatch: (payload) => this.process(payload),
    });
  }

  private joined({ payload }: ConsumerGroupJoinEvent): void {
    const assigned = Object.entries(payload.memberAssignment).flatMap(([topic, partitions]) =>
      partitions.map((partition): AssignedPartition => ({ topic, partition, next: undefined })),
    );
    this.assigned = assigned;
    this.lastProgressMs = performance.now();
    this.sought = this.seek(assigned);
    this.options.onJoined();
  }

  /** Seeks to our own offsets: the broker's may be behind, or ahead where the database was restored. */
  private async seek(assigned: AssignedPartition[]): Promise<void> {
    const isCurrent = () => !this.isStopped && this.assigned === assigned;
    while (isCurrent()) {
      try {
        const offsets = await this.options.loadOffsets();
        for (const each of assigned) {
          const savedOffset = offsets.find((offset) => isSamePartition(offset, each));
          if (!savedOffset || !isCurrent()) continue;
          each.next = savedOffset.next;
          this.consumer.seek({ topic: each.topic, partition: each.partition, offset: savedOffset.next.toString() });
        }
        return;
      } catch {
        // The database cannot be reached, which is reported where events are applied. Messages wait for the offsets.
        await delay(loadRetryMs);
      }
    }
  }

  private async process(payload: EachBatchPayload): Promise<void> {
    let failure: Error | undefined;
    const heartbeat = () =>
      payload.heartbeat().catch((error: Error) => {
        failure ??= error;
      });
    const timer = setInterval(() => void heartbeat(), this.heartbeatMs);
    const isAssigned = () => !this.isStopped && failure === undefined && payload.isRunning() && !payload.isStale();
    this.isProcessing = true;
    try {
      await this.sought;
      await this.deliver(payload, isAssigned, heartbeat);
    } finally {
      clearInterval(timer);
      this.isProcessing = false;
    }
    if (failure !== undefined) throw failure;
  }

  private async deliver(
    payload: EachBatchPayload,
    isAssigned: () => boolean,
    heartbeat: () => Promise<void>,
  ): Promise<void> {
    const { onMessages, messagesMax } = this.options;
    const { messages, topic, partition } = payload.batch;
    for (let index = 0; index < messages.length && isAssigned(); index += messagesMax) {
      const received = messages.slice(index, index + messagesMax).map(toReceived);
      if (!(await onMessages(received, { topic, partition }, isAssigned))) return;
      const last = received.at(-1)!.offset;
      payload.resolveOffset(last.toString());
      const next = last + 1n;
      this.progressed({ topic, partition, next });
      // The commit is for monitoring only. A coordinator that does not know this member (any more) refuses it, and the
      // error would end kafkajs's consumer for good. The heartbeat below gets the same answer, and then joins again.
      const offsets = { topics: [{ topic, partitions: [{ partition, offset: next.toString() }] }] };
      await payload.commitOffsetsIfNecessary(offsets).catch(() => undefined);
      await heartbeat();
    }
  }

  private progressed(reached: PartitionOffset): void {
    this.lastProgressMs = performance.now();
    this.processedAny = true;
    const assigned = this.assigned?.find((each) => isSamePartition(each, reached));
    if (assigned) assigned.next = reached.next;
  }
}

function toReceived({ key, value, headers, offset }: KafkaMessage): ReceivedMessage {
  return {
    key: key?.toString() ?? '',
    value: value ?? Buffer.alloc(0),
    headers: readHeaders(headers),
    offset: BigInt(offset),
  };
}

function readHeaders(headers: IHeaders | undefined): Record<string, string> {
  return Object.fromEntries(Object.entries(headers ?? {}).map(([name, value]) => [name, String(value)]));
}
