import { Backoff, pause } from '../concurrency/backoff';
import { degraded, type Finding } from '../health/check';
import type { Member } from '../kafka/group-member';
import { isSamePartition, type Partition, type PartitionOffset, type ReceivedMessage } from '../kafka/messages';
import type { KafkaBus } from './bus';
import type { Consumer, ConsumerOptions, KafkaTimes } from './consumer';
import { toEvent } from './envelope';
import { batchEvents, EventApplier, type EventStep } from './event-applier';
import { CursorConflict, loadOffsets, saveOffset } from './inbox';
import { isBehind } from './lag';
import { OutboxConsumer } from './outbox-consumer';
import { recordRefused, type RefusedEvent } from './refused';
import { kafkaTopic, TopicsMissing } from './topics';

const standardTimes: KafkaTimes = { sweepAfterMs: 30_000, sessionTimeoutMs: 10_000, stuckMs: 30_000 };
/** The sweep also polls for replays that were requested. */
const sweepPollMaxMs = 2_000;
/** Members in a row without progress, after which the process is to be replaced. */
const stuckMembersMax = 3;

/**
 * Applies events that Kafka delivers. Only speed depends on Kafka: events carry a MAC of their publisher, the inbox and
 * the offsets are in the consumer's own database, gaps are filled from the outbox, and events that are not delivered at
 * all (a topic was emptied, a broker's disk lost) are read from the outbox after a while.
 */
export class KafkaConsumer implements Consumer {
  readonly failed: Promise<never>;
  readonly lag = () => this.checkLag();
  private readonly times: KafkaTimes;
  private readonly topics: string[];
  private readonly applier: EventApplier<PartitionOffset>;
  private readonly sweep: OutboxConsumer;
  private readonly stopping = new AbortController();
  private readonly running: Promise<void>;
  private fail!: (error: Error) => void;
  /** The time since which Kafka has delivered nothing, and the reason. */
  private trouble: { sinceMs: number; message: string } | undefined;
  private cannotApplySinceMs: number | undefined;

  constructor(private readonly options: ConsumerOptions & { bus: KafkaBus }) {
    const { bus, name, from, attempts = 5 } = options;
    this.times = { ...standardTimes, ...options.kafkaTimes };
    this.topics = options.topics.map((topic) => kafkaTopic(bus.prefix, from, topic));
    this.failed = new Promise<never>((_, reject) => {
      this.fail = reject;
    });
    this.failed.catch(() => {});
    this.applier = new EventApplier({
      ...options,
      attempts,
      pause: (ms) => pause(ms, this.stopping.signal),
      move: (tx, _, to) => saveOffset(tx, name, to),
    });
    const { sweepAfterMs } = this.times;
    const sweepPollMs = Math.min(sweepPollMaxMs, sweepAfterMs / 15);
    this.sweep = new OutboxConsumer({ ...options, sweepAfterMs, pollMs: { min: sweepPollMs / 4, max: sweepPollMs } });
    this.running = this.run();
  }

  wake(): void {
    this.sweep.wake();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await Promise.all([this.running, this.sweep.stop()]);
  }

  private get isStopping(): boolean {
    return this.stopping.signal.aborted;
  }

  /** Joins the group, again each time that a member has failed or makes no progress. */
  private async run(): Promise<void> {
    const backoff = new Backoff({ firstMs: 400, maxMs: 2_000 });
    let stuckMembers = 0;
    while (!this.isStopping) {
      try {
        stuckMembers = (await this.participate()) ? 0 : stuckMembers + 1;
        backoff.reset();
        if (stuckMembers >= stuckMembersMax && !this.isStopping)
          this.fail(new Error(`the consumer ${this.options.name} makes no progress with Kafka`));
      } catch (error) {
        if (this.isStopping) return;
        this.report(error);
        await backoff.wait(this.stopping.signal);
      }
    }
  }

  /** Is a member of the group as long as it makes progress; returns whether it made any. */
  private async participate(): Promise<boolean> {
    const { bus, pool, log, name } = this.options;
    const missing = await bus.kafka.missingTopics(this.topics);
    if (missing.length > 0) throw new TopicsMissing(missing);
    const member = bus.kafka.joinGroup({
      groupId: `${bus.prefix}.${name}`,
      topics: this.topics,
      messagesMax: batchEvents,
      sessionTimeoutMs: this.times.sessionTimeoutMs,
      loadOffsets: () => loadOffsets(pool, name),
      onJoined: () => (this.trouble = undefined),
      onMessages: (messages, from, isAssigned) => this.process(messages, from, isAssigned),
    });
    const left = new AbortController();
    try {
      const stuck = await Promise.race([member.ended, this.whenStuck(member, left.signal)]);
      if (!this.isStopping)
        log.warn({ err: stuck, consumer: name }, 'a Kafka consumer makes no progress and is replaced');
      return member.hasProcessed;
    } finally {
      left.abort();
      await member.stop();
    }
  }

  /** Resolves when a member makes no progress, with the reason, and when it has left or the consumer stops. */
  private async whenStuck(member: Member, left: AbortSignal): Promise<Error> {
    const { stuckMs } = this.times;
    for (;;) {
      await pause(stuckMs / 3, this.stopping.signal);
      if (this.isStopping || left.aborted) return new Error('stopped');
      if (member.isBusy || performance.now() - member.progressMs < stuckMs) continue;
      const { assignment } = member;
      // While the broker does not answer, a new member would make no progress either.
      const ranges = await this.options.bus.kafka.ranges(this.topics).catch(() => undefined);
      if (!ranges) continue;
      if (!assignment) return new Error('the group was not joined');
      const hasMessages = ranges.some((range) => {
        const assigned = assignment.find((each) => isSamePartition(each, range));
        return assigned !== undefined && range.high > range.low && range.high > (assigned.next ?? range.low);
      });
      if (hasMessages) return new Error('there are messages, and they are not delivered');
    }
  }

  /** Logs each reason once, and keeps it for health. */
  private report(error: unknown): void {
    const { log, name } = this.options;
    const message = error instanceof TopicsMissing ? error.message : 'Kafka cannot be reached';
    if (this.trouble?.message !== message) {
      if (error instanceof TopicsMissing) log.error({ consumer: name }, message);
      else log.warn({ err: error, consumer: name }, 'a Kafka consumer failed and is replaced');
    }
    this.trouble = { sinceMs: this.trouble?.sinceMs ?? performance.now(), message };
  }

  /**
   * Retries until the messages are applied or the partition is lost; meanwhile the partition waits, which keeps its
   * order.
   */
  private async process(
    messages: readonly ReceivedMessage[],
    { topic, partition }: Partition,
    isAssigned: () => boolean,
  ): Promise<boolean> {
    const { pool, log, name } = this.options;
    const { steps, refused } = this.verify(messages, { topic, partition });
    const from = { topic, partition, next: messages[0]!.offset };
    const next = { topic, partition, next: messages.at(-1)!.offset + 1n };
    const isOver = () => this.isStopping || !isAssigned();
    const backoff = new Backoff({ firstMs: 200, maxMs: 2_000 });
    while (!isOver()) {
      try {
        await recordRefused(pool, log, name, refused);
        await this.applier.apply(steps, from, next, isOver);
        this.cannotApplySinceMs = undefined;
        return true;
      } catch (error) {
        if (isOver() || error instanceof CursorConflict) continue;
        this.cannotApplySinceMs ??= performance.now();
        if (backoff.failures === 0)
          log.warn({ err: error, consumer: name }, 'events cannot be applied now, trying again');
        await backoff.wait(this.stopping.signal);
      }
    }
    return false;
  }

  /** Separates the events that their publisher has signed from other messages. */
  private verify(messages: readonly ReceivedMessage[], { topic, partition }: Partition) {
    const steps: Array<EventStep<PartitionOffset>> = [];
    const refused: RefusedEvent[] = [];
    for (const message of messages) {
      const { offset } = message;
      const event = toEvent(message);
      if (event && this.options.verifier.isSigned(event))
        steps.push({ event, to: { topic, partition, next: offset + 1n } });
      else refused.push(toRefusedMessage(message, `${topic}/${partition}/${offset}`, event !== undefined));
    }
    return { steps, refused };
  }

  private async checkLag(): Promise<Finding> {
    if (this.trouble && isBehind(this.trouble.sinceMs)) return degraded(this.trouble.message);
    if (isBehind(this.cannotApplySinceMs)) return degraded('events cannot be applied');
    return this.sweep.lag();
  }
}

function toRefusedMessage({ key, headers, value }: ReceivedMessage, source: string, isEvent: boolean): RefusedEvent {
  const { signatures: _, ...about } = headers;
  return {
    source,
    why: isEvent ? 'not signed by its publisher' : 'no event',
    about: { ...about, key },
    payload: value,
  };
}
