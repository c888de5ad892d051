import { describeWith } from '@granary/testing/stack';
import { limitMs } from '@granary/testing/speed';
import { startOwnKafka, type TestBroker } from './support/bus-broker';
import { causeChaos, victims } from './support/bus-chaos';
import { endWorlds } from './support/bus-world';

/** `npm run test:long` runs the full size; otherwise there are enough kills to hit each of the four several times. */
const size =
  process.env['TEST_LONG'] === '1'
    ? { events: 300_000, kills: 500, everyMs: 2_000 }
    : { events: 100_000, kills: 40, everyMs: 700 };
const timeoutMs = limitMs(480_000) + 3 * size.kills * size.everyMs;

afterEach(endWorlds);

async function surviveChaos(transport: keyof typeof victims, broker: TestBroker | undefined): Promise<void> {
  const { problems, ...result } = await causeChaos({ ...size, broker });
  console.log(`${transport}: ${JSON.stringify(result)}`);
  expect(problems).toEqual([]);
  expect(result.deadLetters).toBe(0);
  // So the record includes the outcome of every commit without an answer.
  expect(result.writes.unknown).toBeGreaterThan(0);
  expect(result.events).toBeGreaterThanOrEqual(size.events);
  expect(Object.keys(result.killed).sort()).toEqual([...victims[transport]].sort());
}

test(
  'no event is lost, doubled or out of order while consumers and Postgres are killed again and again',
  () => surviveChaos('postgres', undefined),
  timeoutMs,
);

describeWith(describe, 'kafka')('through Kafka', () => {
  test(
    'no event is lost, doubled or out of order while relays, consumers, the broker and Postgres are killed again and again',
    async () => {
      const broker = await startOwnKafka();
      try {
        await surviveChaos('kafka', broker);
      } finally {
        if (!broker.isUp()) await broker.start();
        await broker.stop();
      }
    },
    timeoutMs,
  );
});
