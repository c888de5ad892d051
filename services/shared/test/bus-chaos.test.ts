import { describeWith } from '@granary/shared/testing/stack';
import { startOwnKafka } from './bus-broker';
import { causeChaos, type ChaosOptions } from './bus-chaos';
import { endWorlds } from './bus-world';

/** `npm run test:long` asks for the whole measure; here are enough kills to meet each of the four several times. */
const size =
  process.env['TEST_LONG'] === '1'
    ? { events: 100_000, kills: 500, everyMs: 2_000 }
    : { events: 10_000, kills: 40, everyMs: 700 };
const timeoutMs = 240_000 + 3 * size.kills * size.everyMs;

afterEach(endWorlds);

async function surviveChaos(broker: ChaosOptions['broker']): Promise<Record<string, number>> {
  const { total, published, applied, deadLetters, killed } = await causeChaos({ ...size, broker });
  console.log(`${total} events, killed: ${JSON.stringify(killed)}`);
  expect(total).toBeGreaterThanOrEqual(size.events);
  // Each once, and in the order of its key.
  expect(applied).toEqual(published);
  expect(deadLetters).toBe(0);
  return killed;
}

test(
  'no event is lost, doubled or out of order while consumers and Postgres are killed again and again',
  async () => {
    const killed = await surviveChaos(undefined);
    expect(Math.min(killed['consumer']!, killed['postgres']!)).toBeGreaterThan(0);
  },
  timeoutMs,
);

describeWith(describe, 'kafka')('through Kafka', () => {
  test(
    'no event is lost, doubled or out of order while relays, consumers, the broker and Postgres are killed again and again',
    async () => {
      const broker = await startOwnKafka();
      try {
        const killed = await surviveChaos(broker);
        expect(Object.values(killed).reduce((sum, kills) => sum + kills)).toBeGreaterThanOrEqual(size.kills);
      } finally {
        if (!broker.isUp()) await broker.start();
        await broker.stop();
      }
    },
    timeoutMs,
  );
});
