import { describeWith } from '@granary/testing/stack';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { isLong, size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { startOwnKafka, type TestBroker } from './support/bus-broker';
import { causeChaos, victims } from './support/bus-chaos';
import { endWorlds } from './support/bus-world';

const chaos = {
  events: size({ run: 10_000, long: 300_000 }),
  kills: size({ run: 8, long: 500 }),
  everyMs: isLong ? 2_000 : 700,
};
const seeds = { postgres: seedOf('shared/bus-chaos postgres'), kafka: seedOf('shared/bus-chaos kafka') };
const timeoutMs = sizedLimitMs(limitMs(480_000));

afterEach(endWorlds);

async function surviveChaos(transport: keyof typeof victims, broker: TestBroker | undefined): Promise<void> {
  const { problems, ...result } = await causeChaos({ ...chaos, broker, random: seededRandom(seeds[transport]) });
  console.log(`${transport}: ${JSON.stringify(result)}`);
  expect(problems).toEqual([]);
  expect(result.deadLetters).toBe(0);
  // So the record includes the outcome of every commit without an answer.
  expect(result.writes.unknown).toBeGreaterThan(0);
  expect(result.events).toBeGreaterThanOrEqual(chaos.events);
  expect(Object.keys(result.killed).sort()).toEqual([...victims[transport]].sort());
}

test(
  `no event is lost, doubled or out of order while consumers and Postgres are killed again and again, by the seed ${seeds.postgres}`,
  () => surviveChaos('postgres', undefined),
  timeoutMs,
);

describeWith(describe, 'kafka')('through Kafka', () => {
  test(
    `no event is lost, doubled or out of order while relays, consumers, the broker and Postgres are killed again and again, by the seed ${seeds.kafka}`,
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
