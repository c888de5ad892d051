import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { postgresTimeUs, postgresUsage, processorTimeUs, startProcess } from './processes.mjs';
import { median, table } from './report.mjs';

const warmUpEvents = 1_000;
/** The rate for the latency measurement, below saturation. */
const pacedPerSecond = 500;

export const eventsTitle =
  'events: committed by a writer, applied by a consumer in another process, on both transports of the bus';

/**
 * Measures the throughput of events from writers that commit as fast as they can to a consumer that commits their
 * effects, and the latency at a moderate rate. Returns by transport the medians of `{committedPerSecond,
 * appliedPerSecond, p50Ms, p99Ms, cpuUs}`, the last one per event and process; or `{missing}`, the reason why Kafka
 * cannot run on this machine.
 */
export async function measureEvents(tools, options) {
  const directory = path.join(tools.directory, 'events');
  await mkdir(directory);
  const broker = startProcess('kafka.mjs');
  tools.started(broker);
  const kafka = await broker.call('start', directory);
  const buses = { postgres: await openBus(tools, 'postgres') };
  if (!kafka.missing) buses.kafka = await openBus(tools, 'kafka', kafka);
  const rounds = Object.fromEntries(Object.keys(buses).map((name) => [name, []]));
  for (let round = 0; round < options.rounds; round++) {
    for (const [name, bus] of Object.entries(buses)) rounds[name].push(await measureRound(tools, bus, options.seconds));
  }
  for (const [name, { subscriber, published }] of Object.entries(buses)) {
    const effects = await subscriber.call('effectsCount');
    if (effects !== published) throw new Error(`${name}: ${published} events had ${effects} effects.`);
  }
  const results = Object.fromEntries(Object.entries(rounds).map(([name, each]) => [name, together(each)]));
  return kafka.missing ? { ...results, kafka: { missing: kafka.missing } } : results;
}

/** A writer and a consumer of events in processes of their own, on one transport. */
export async function openBus({ postgres, started }, name, kafka) {
  const prefix = `bench_events_${name}`;
  const databases = { publisher: `${prefix}_publisher`, subscriber: `${prefix}_subscriber` };
  const urls = await postgres.call('makeDatabases', Object.values(databases));
  const subscriberUrl = urls[databases.subscriber];
  const bus = kafka && { place: kafka.place, prefix: 'bench' };
  const publisher = startProcess('granary/publisher.mjs');
  started(publisher);
  const subscriber = startProcess('granary/subscriber.mjs');
  started(subscriber);
  await subscriber.call('prepare', { databaseUrl: subscriberUrl });
  const databaseUrl = urls[databases.publisher];
  const { address } = await publisher.call('start', { databaseUrl, subscriberUrl, kafka: bus });
  await subscriber.call('start', { outboxAddress: address, kafka: bus });
  const pids = { publisher: publisher.pid, subscriber: subscriber.pid, ...(kafka && { kafka: kafka.pid }) };
  const opened = { prefix, publisher, subscriber, pids, published: 0 };
  while (opened.published < warmUpEvents) await publishFor(opened, 0.2);
  return opened;
}

/** Publishes for a time, and waits until everything is applied. Returns both rates per second. */
async function publishFor(bus, seconds) {
  const startedMs = performance.now();
  const { events } = await bus.publisher.call('publishFor', seconds);
  const committedMs = performance.now();
  bus.published += events;
  await bus.subscriber.call('untilApplied', bus.published);
  const perSecond = (endMs) => (events * 1000) / (endMs - startedMs);
  return { events, committedPerSecond: perSecond(committedMs), appliedPerSecond: perSecond(performance.now()) };
}

async function measureRound({ postgresPid }, bus, seconds) {
  const before = look(bus, postgresPid);
  const { events, committedPerSecond, appliedPerSecond } = await publishFor(bus, seconds);
  const cpuUs = usageOf(before, look(bus, postgresPid), events);
  const delaysMs = await bus.publisher.call('publishAt', { perSecond: pacedPerSecond, seconds });
  bus.published += delaysMs.length;
  const delayMs = (share) => delaysMs[Math.floor((delaysMs.length - 1) * share)];
  return { committedPerSecond, appliedPerSecond, p50Ms: delayMs(0.5), p99Ms: delayMs(0.99), cpuUs };
}

function look({ pids, prefix }, postgresPid) {
  const times = Object.entries(pids).map(([name, pid]) => [name, processorTimeUs(pid)]);
  return { times: Object.fromEntries(times), postgres: postgresUsage(postgresPid, prefix) };
}

/** By process, in µs per event; empty on systems without /proc. */
function usageOf(before, after, events) {
  if (Object.values(before.times).includes(undefined)) return {};
  const times = Object.entries(after.times).map(([name, timeUs]) => [name, (timeUs - before.times[name]) / events]);
  return { ...Object.fromEntries(times), postgres: postgresTimeUs(before.postgres, after.postgres) / events };
}

function together(rounds) {
  const medianOf = (field) => median(rounds.map((round) => round[field]));
  const processes = Object.keys(rounds[0].cpuUs);
  return {
    committedPerSecond: medianOf('committedPerSecond'),
    appliedPerSecond: medianOf('appliedPerSecond'),
    p50Ms: medianOf('p50Ms'),
    p99Ms: medianOf('p99Ms'),
    cpuUs: Object.fromEntries(processes.map((name) => [name, median(rounds.map(({ cpuUs }) => cpuUs[name]))])),
  };
}

/** Formats the table of the case: `results` by transport. */
export function eventsLines(results) {
  const header = ['', 'committed/s', 'applied/s', `p50 ms at ${pacedPerSecond}/s`, 'p99 ms', 'CPU µs per event'];
  const measured = Object.entries(results).filter(([, { missing }]) => missing === undefined);
  const rows = measured.map(([name, { committedPerSecond, appliedPerSecond, p50Ms, p99Ms, cpuUs }]) => [
    name,
    ...[committedPerSecond, appliedPerSecond].map((rate) => Math.round(rate).toLocaleString('en-US')),
    ...[p50Ms, p99Ms].map((ms) => ms.toFixed(1)),
    Object.entries(cpuUs)
      .map(([process, us]) => `${process} ${Math.round(us)}`)
      .join(' + ') || 'unknown here',
  ]);
  const skipped = Object.entries(results).filter(([, { missing }]) => missing !== undefined);
  return [
    '',
    eventsTitle,
    ...table([header, ...rows]),
    ...skipped.map(([name, { missing }]) => `  ${name} was not measured: ${missing}`),
  ];
}
