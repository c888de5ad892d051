import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import type { PublisherCalls } from './granary/publisher';
import type { SubscriberCalls } from './granary/subscriber';
import type { KafkaCalls, KafkaStart } from './kafka';
import {
  postgresTimeUs,
  postgresUsage,
  processorTimeUs,
  startProcess,
  type Child,
  type PostgresUsage,
} from './processes';
import { recordOf } from './records';
import { median, mediansByProcess, table } from './report';
import type { Lengths, Tools } from './tools';

const warmUpEvents = 1_000;
/** The rate for the latency measurement, below saturation. */
const pacedPerSecond = 500;

type StartedKafka = Exclude<KafkaStart, { missing: string }>;

/** A writer and a consumer of events. */
export interface EventBus {
  /** The prefix of the names of their databases. */
  prefix: string;
  publisher: Child<PublisherCalls>;
  subscriber: Child<SubscriberCalls>;
  pids: Record<string, number>;
  /** The number of events that were published so far. */
  published: number;
}

interface Round {
  committedPerSecond: number;
  appliedPerSecond: number;
  p50Ms: number;
  p99Ms: number;
  /** Processor time per event, by process; empty on systems without /proc. */
  cpuUs: Record<string, number>;
}

interface UsageSoFar {
  times: Record<string, number | undefined>;
  postgres: PostgresUsage;
}

/** The results by transport; `missing` is the reason why Kafka cannot run on this machine. */
type EventsResults = Record<string, Round | { missing: string }>;

export const eventsTitle =
  'events: committed by a writer, applied by a consumer in another process, on both transports of the bus';

/**
 * Measures the throughput of events from writers that commit as fast as they can to a consumer that commits their
 * effects, and the latency at a moderate rate. Returns medians of the rounds.
 */
export async function measureEvents(tools: Tools, options: Lengths): Promise<EventsResults> {
  const directory = path.join(tools.directory, 'events');
  await mkdir(directory);
  const broker = startProcess<KafkaCalls>('kafka.js');
  tools.onStart(broker);
  const kafka = await broker.call('start', directory);
  const buses: Record<string, EventBus> = { postgres: await openBus(tools, 'postgres') };
  if (!('missing' in kafka)) buses.kafka = await openBus(tools, 'kafka', kafka);
  const rounds = recordOf(Object.keys(buses), (): Round[] => []);
  for (let round = 0; round < options.rounds; round++) {
    for (const [name, bus] of Object.entries(buses))
      rounds[name]!.push(await measureRound(tools, bus, options.seconds));
  }
  for (const [name, { subscriber, published }] of Object.entries(buses)) {
    const effects = await subscriber.call('effectsCount');
    if (effects !== published) throw new Error(`${name}: ${published} events had ${effects} effects.`);
  }
  const results = recordOf(Object.keys(rounds), (name) => together(rounds[name]!));
  return 'missing' in kafka ? { ...results, kafka } : results;
}

/** A writer and a consumer of events in processes of their own, on one transport. */
export async function openBus({ postgres, onStart }: Tools, name: string, kafka?: StartedKafka): Promise<EventBus> {
  const prefix = `bench_events_${name}`;
  const databases = { publisher: `${prefix}_publisher`, subscriber: `${prefix}_subscriber` };
  const urls = await postgres.call('makeDatabases', Object.values(databases));
  const subscriberUrl = urls[databases.subscriber]!;
  const bus = kafka && { kafka: { place: kafka.place, prefix: 'bench' } };
  const publisher = startProcess<PublisherCalls>('granary/publisher.js');
  onStart(publisher);
  const subscriber = startProcess<SubscriberCalls>('granary/subscriber.js');
  onStart(subscriber);
  await subscriber.call('prepare', { databaseUrl: subscriberUrl });
  const databaseUrl = urls[databases.publisher]!;
  const { address } = await publisher.call('start', { databaseUrl, subscriberUrl, ...bus });
  await subscriber.call('start', { outboxAddress: address, ...bus });
  const pids = { publisher: publisher.pid, subscriber: subscriber.pid, ...(kafka && { kafka: kafka.pid }) };
  const opened = { prefix, publisher, subscriber, pids, published: 0 };
  while (opened.published < warmUpEvents) await publishFor(opened, 0.2);
  return opened;
}

/** Publishes for a time, and waits until everything is applied. Returns both rates per second. */
async function publishFor(bus: EventBus, seconds: number) {
  const startedMs = performance.now();
  const { events } = await bus.publisher.call('publishFor', seconds);
  const committedMs = performance.now();
  bus.published += events;
  await bus.subscriber.call('untilApplied', bus.published);
  const perSecond = (endMs: number) => (events * 1000) / (endMs - startedMs);
  return { events, committedPerSecond: perSecond(committedMs), appliedPerSecond: perSecond(performance.now()) };
}

async function measureRound({ postgresPid }: Tools, bus: EventBus, seconds: number): Promise<Round> {
  const before = look(bus, postgresPid);
  const { events, committedPerSecond, appliedPerSecond } = await publishFor(bus, seconds);
  const cpuUs = usageOf(before, look(bus, postgresPid), events);
  const delaysMs = await bus.publisher.call('publishAt', { perSecond: pacedPerSecond, seconds });
  bus.published += delaysMs.length;
  const delayMs = (share: number) => delaysMs[Math.floor((delaysMs.length - 1) * share)]!;
  return { committedPerSecond, appliedPerSecond, p50Ms: delayMs(0.5), p99Ms: delayMs(0.99), cpuUs };
}

function look({ pids, prefix }: EventBus, postgresPid: number): UsageSoFar {
  const times = recordOf(Object.keys(pids), (name) => processorTimeUs(pids[name]!));
  return { times, postgres: postgresUsage(postgresPid, prefix) };
}

/** Processor time by process, in µs per event; empty on systems without /proc. */
function usageOf(before: UsageSoFar, after: UsageSoFar, events: number): Round['cpuUs'] {
  if (Object.values(before.times).includes(undefined)) return {};
  const names = Object.keys(after.times);
  const times = recordOf(names, (name) => (after.times[name]! - before.times[name]!) / events);
  return { ...times, postgres: postgresTimeUs(before.postgres, after.postgres) / events };
}

function together(rounds: readonly Round[]): Round {
  const medianOf = (field: Exclude<keyof Round, 'cpuUs'>) => median(rounds.map((round) => round[field]));
  return {
    committedPerSecond: medianOf('committedPerSecond'),
    appliedPerSecond: medianOf('appliedPerSecond'),
    p50Ms: medianOf('p50Ms'),
    p99Ms: medianOf('p99Ms'),
    cpuUs: mediansByProcess(rounds.map(({ cpuUs }) => cpuUs)),
  };
}

/** Formats the table of the case: `results` by transport. */
export function eventsLines(results: EventsResults): string[] {
  const header = ['', 'committed/s', 'applied/s', `p50 ms at ${pacedPerSecond}/s`, 'p99 ms', 'CPU µs per event'];
  const entries = Object.entries(results);
  const rows = entries.flatMap(([name, result]) => ('missing' in result ? [] : [[name, ...cells(result)]]));
  const skipped = entries.flatMap(([name, result]) =>
    'missing' in result ? [`  ${name} was not measured: ${result.missing}`] : [],
  );
  return ['', eventsTitle, ...table([header, ...rows]), ...skipped];
}

function cells({ committedPerSecond, appliedPerSecond, p50Ms, p99Ms, cpuUs }: Round): string[] {
  return [
    ...[committedPerSecond, appliedPerSecond].map((rate) => Math.round(rate).toLocaleString('en-US')),
    ...[p50Ms, p99Ms].map((ms) => ms.toFixed(1)),
    Object.entries(cpuUs)
      .map(([process, us]) => `${process} ${Math.round(us)}`)
      .join(' + ') || 'unknown here',
  ];
}
