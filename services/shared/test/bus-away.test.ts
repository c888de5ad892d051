import { setTimeout as delay } from 'node:timers/promises';
import { observeBus } from '@granary/shared/bus/metrics';
import { renderMetrics } from '@granary/shared/telemetry/metrics';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { isLong, sizedLimitMs } from '@granary/testing/size';
import { describeWith } from '@granary/testing/stack';
import { limitMs } from '@granary/testing/speed';
import { startOwnKafka, type TestBroker } from './support/bus-broker';
import { Ledger } from './support/bus-ledger';
import { count, endWorlds, kafkaBus, until, world } from './support/bus-world';

const awayMs = isLong ? 300_000 : 5_000;
const beforeMs = isLong ? 5_000 : 1_250;
const drainTimeoutMs = isLong ? 300_000 : 120_000;
const seed = seedOf('shared/bus-away');
const load = { writers: 6, pauseMs: 50 };

/**
 * How a broker is unavailable. A dead one refuses connections; a frozen one accepts them and answers all of them later.
 */
const faults = {
  dead: {
    begin: (broker: TestBroker) => broker.kill(),
    end: (broker: TestBroker) => broker.start(),
  },
  frozen: {
    begin: async (broker: TestBroker) => broker.freeze(),
    end: async (broker: TestBroker) => broker.resume(),
  },
};

/** The metrics of a service about events that its relay has not sent; they count up to 10,000. */
async function pendingEvents(service: string): Promise<number> {
  const name = `granary_outbox_pending_events{service="${service}",reader="kafka-relay"} `;
  const line = (await renderMetrics()).split('\n').find((each) => each.startsWith(name));
  return Number(line?.slice(name.length));
}

/**
 * Writes before, while and after a broker is unavailable; resolves to what was observed once all events had arrived.
 */
async function survive(fault: keyof typeof faults, broker: TestBroker) {
  const { publisher, subscriber, consume, relaying } = await world({
    size: load.writers + 6,
    bus: await kafkaBus(broker.place),
  });
  const unobserve = observeBus(fault, publisher);
  try {
    const consumer = consume();
    const ledger = new Ledger(publisher, publisher, seededRandom(seed));
    const writers = ledger.startLoad(load);
    await until(async () => (await count(subscriber, 'applied')) > 0);
    writers.tookMs.length = 0;
    await delay(beforeMs);
    const before = writers.tookMs.splice(0);

    await faults[fault].begin(broker);
    const isOver = delay(awayMs);
    // The metric counts no further than 10,000, which may be reached before health shows what waits.
    let pendingEarly = 0;
    await until(async () => (pendingEarly = await pendingEvents(fault)) > 0);
    await until(async () => (await relaying!.check()).message?.startsWith('events wait') === true);
    await isOver;
    const during = writers.tookMs.splice(0);
    const pendingLate = await pendingEvents(fault);

    await faults[fault].end(broker);
    await until(async () => (await relaying!.check()).status === 'HEALTHY', drainTimeoutMs);
    await writers.stop();
    await until(async () => (await pendingEvents(fault)) === 0, drainTimeoutMs, 250);
    const events = await ledger.eventCount();
    await until(async () => (await count(subscriber, 'applied')) >= events, drainTimeoutMs, 250);
    await until(async () => (await consumer.lag()).status === 'HEALTHY');
    const times = `${describeTimes(before)} before, ${describeTimes(during)} meanwhile`;
    console.log(`${fault}: ${events} events; writes: ${times}`);
    return {
      before,
      during,
      pendingEarly,
      pendingLate,
      writes: ledger.counts(),
      errors: ledger.errors(),
      problems: await ledger.findProblems(subscriber),
    };
  } finally {
    unobserve();
  }
}

function describeTimes(tookMs: readonly number[]): string {
  const sorted = [...tookMs].sort((a, b) => a - b);
  const at = (share: number) => sorted[Math.floor((sorted.length - 1) * share)]!.toFixed(1);
  return `${sorted.length} of ${at(0.5)} ms (p99 ${at(0.99)}, at most ${at(1)})`;
}

describeWith(describe, 'kafka')('while the broker is away', () => {
  test(
    `writes by the seed ${seed} go on being acknowledged, metrics and health tell of what waits, and then all of it arrives in order`,
    async () => {
      const names = Object.keys(faults) as Array<keyof typeof faults>;
      const brokers = await Promise.all(names.map(startOwnKafka));
      try {
        const all = await Promise.all(names.map((fault, at) => survive(fault, brokers[at]!)));
        for (const { before, during, pendingEarly, pendingLate, writes, errors, problems } of all) {
          expect(problems).toEqual([]);
          expect(errors).toEqual([]);
          expect(writes).toMatchObject({ failed: 0, unknown: 0 });
          // It was away for at least four times as long as what went before.
          expect(during.length).toBeGreaterThan(before.length);
          expect(pendingEarly).toBeGreaterThan(0);
          expect(pendingLate).toBeGreaterThan(pendingEarly);
        }
      } finally {
        for (const broker of brokers) broker.resume();
        await endWorlds();
        await Promise.all(brokers.map((broker) => broker.stop()));
      }
    },
    sizedLimitMs(limitMs(4 * drainTimeoutMs)),
  );
});
