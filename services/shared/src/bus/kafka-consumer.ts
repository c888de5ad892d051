import { batchEvents, createEventApplier, type EventStep } from './event-applier';
import type { KafkaBus } from './bus';
import type { Consumer, ConsumerOptions, KafkaTimes } from './consumer';
import { toEvent } from './envelope';
import { CursorConflict, loadOffsets, saveOffset } from './inbox';
import type { GroupOptions, Member, PartitionOffset, ReceivedMessage } from '../kafka/client';
import { isBehind } from './lag';
import { degraded } from '../health/check';
import { startOutboxConsumer } from './outbox-consumer';
import { recordRefused, type RefusedEvent } from './refused';
import { createSignal } from '../concurrency/signal';
import { kafkaTopic, TopicsMissing } from './topics';

const standardTimes: KafkaTimes = { sweepAfterMs: 30_000, sessionTimeoutMs: 10_000, stuckMs: 30_000 };
const retryMs = { min: 100, max: 2_000 };
const rejoinMs = { min: 200, max: 2_000 };
/** The sweep also looks whether a replay was asked for. */
const sweepPollMaxMs = 2_000;
/** So many members in a row that got nowhere are more than bad luck. */
const stuckMembersMax = 3;

/**
 * Applies events as Kafka brings them. Kafka is trusted with nothing but speed: events carry the MAC of their publisher, what
 * was applied and where the reading stands is in the consumer's own database, gaps are filled from the outbox, and what does not come at all (the topic
 * was emptied, the broker's disk lost) is swept up from the outbox after a while.
 */
export function startKafkaConsumer(options: ConsumerOptions & { bus: KafkaBus }): Consumer {
  const { bus, pool, log, name, source, verifier, handle, attempts = 5 } = options;
  const times = { ...standardTimes, ...options.kafkaTimes };
  const topics = options.topics.map((topic) => kafkaTopic(bus.prefix, options.from, topic));
  const stopped = createSignal();
  let stopping = false;
  /** Since when, and why, nothing comes through Kafka. */
  let trouble: { sinceMs: number; message: string } | undefined;
  let cannotApplySinceMs: number | undefined;
  let fail: (error: Error) => void = () => {};
  const failed = new Promise<never>((_, reject) => {
    fail = reject;
  });
  failed.catch(() => {});

  const pause = (ms: number) => (stopping ? Promise.resolve() : stopped.wait(ms));
  const apply = createEventApplier<PartitionOffset>({
    ...{ pool, log, name, source, verifier, handle, attempts, pause },
    move: (tx, _, to) => saveOffset(tx, name, to),
  });

  /** Tries until it is done, or somebody else's: meanwhile the partition waits, which keeps its order. */
  const onMessages: GroupOptions['onMessages'] = async (messages, { topic, partition }, isOurs) => {
    const steps: Array<EventStep<PartitionOffset>> = [];
    const refused: RefusedEvent[] = [];
    for (const message of messages) {
      const event = toEvent(message);
      if (event && verifier.isSigned(event)) steps.push({ event, to: { topic, partition, next: message.offset + 1n } });
      else refused.push(toRefusedMessage(message, `${topic}/${partition}/${message.offset}`, event !== undefined));
    }
    const from = { topic, partition, next: messages[0]!.offset };
    const next = { topic, partition, next: messages.at(-1)!.offset + 1n };
    const isOver = () => stopping || !isOurs();
    for (let failures = 0; !isOver(); failures++) {
      try {
        await recordRefused(pool, log, name, refused);
        await apply(steps, from, next, isOver);
        cannotApplySinceMs = undefined;
        return true;
      } catch (error) {
        if (isOver() || error instanceof CursorConflict) continue;
        cannotApplySinceMs ??= performance.now();
        if (failures === 0) log.warn({ err: error, consumer: name }, 'events cannot be applied now, trying again');
        await pause(Math.min(retryMs.max, retryMs.min * 2 ** Math.min(failures, 10)));
      }
    }
    return false;
  };

  /** Why the member should be replaced; asks until there is a reason, or it is over. */
  const findStuck = async (watched: Member, isOver: () => boolean): Promise<Error> => {
    for (;;) {
      await pause(times.stuckMs / 3);
      if (stopping || isOver()) return new Error('stopped');
      if (watched.isBusy() || performance.now() - watched.progressedMs() < times.stuckMs) continue;
      const mine = watched.assignment();
      // While the broker does not answer, it is not the member's fault.
      const ranges = await bus.kafka.ranges(topics).catch(() => undefined);
      if (!ranges) continue;
      if (!mine) return new Error('the group was not joined');
      const isBehind = ranges.some((range) => {
        const place = mine.find((each) => each.topic === range.topic && each.partition === range.partition);
        return place !== undefined && range.high > range.low && range.high > (place.next ?? range.low);
      });
      if (isBehind) return new Error('messages are there and do not come');
    }
  };

  /** Is a member of the group for as long as that goes well; answers whether it got anywhere. */
  const takePart = async (): Promise<boolean> => {
    const missing = await bus.kafka.missingTopics(topics);
    if (missing.length > 0) throw new TopicsMissing(missing);
    const current = bus.kafka.joinGroup({
      groupId: `${bus.prefix}.${name}`,
      topics,
      messagesMax: batchEvents,
      sessionTimeoutMs: times.sessionTimeoutMs,
      loadOffsets: () => loadOffsets(pool, name),
      onJoined: () => {
        trouble = undefined;
      },
      onMessages,
    });
    let isOver = false;
    try {
      const why = await Promise.race([current.ended, findStuck(current, () => isOver)]);
      if (!stopping) log.warn({ err: why, consumer: name }, 'a Kafka consumer gets nowhere and is replaced');
      return current.hasDealt();
    } finally {
      isOver = true;
      await current.stop();
    }
  };

  const run = async () => {
    let failures = 0;
    let stuck = 0;
    while (!stopping) {
      try {
        stuck = (await takePart()) ? 0 : stuck + 1;
        failures = 0;
        if (stuck >= stuckMembersMax && !stopping) fail(new Error(`the consumer ${name} gets nowhere with Kafka`));
      } catch (error) {
        if (stopping) return;
        const message = error instanceof TopicsMissing ? error.message : 'Kafka cannot be reached';
        if (trouble?.message !== message) {
          if (error instanceof TopicsMissing) log.error({ consumer: name }, message);
          else log.warn({ err: error, consumer: name }, 'a Kafka consumer ended, another one is made');
        }
        trouble = { sinceMs: trouble?.sinceMs ?? performance.now(), message };
        await pause(Math.min(rejoinMs.max, rejoinMs.min * 2 ** Math.min(failures++, 10)));
      }
    }
  };

  const sweepPollMs = Math.min(sweepPollMaxMs, times.sweepAfterMs / 15);
  const sweep = startOutboxConsumer({
    ...options,
    sweepAfterMs: times.sweepAfterMs,
    pollMs: { min: sweepPollMs / 4, max: sweepPollMs },
  });
  const running = run();
  return {
    stop: async () => {
      stopping = true;
      stopped.notify();
      await Promise.all([running, sweep.stop()]);
    },
    wake: () => sweep.wake(),
    failed,
    lag: async () => {
      if (trouble && isBehind(trouble.sinceMs)) return degraded(trouble.message);
      if (isBehind(cannotApplySinceMs)) return degraded('events cannot be applied');
      return sweep.lag();
    },
  };
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
