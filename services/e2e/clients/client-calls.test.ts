import { partsOf } from '@granary/testing/seeds';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { borrowGranary, newApp, type Granary } from '../support/granary';
import { ClientPackage } from './client-package';

const calls = size({ run: 1_000, long: 20_000 });
const writes = size({ run: 40, long: 600 });
const cuts = size({ run: 50, long: 400 });

let granary: Granary;
let client: ClientPackage;
beforeAll(async () => {
  granary = await borrowGranary('direct');
  client = await ClientPackage.install();
});
afterAll(async () => {
  await client?.remove();
  await granary?.stop();
});

async function newTarget() {
  const { appId, key } = await newApp(granary);
  return { url: granary.url, app: appId, key };
}

test.each(partsOf('client calls', calls))(
  'each call has the result that plain HTTP has (seed $seed)',
  async ({ seed, cases }) => {
    const targets = [await newTarget(), await newTarget()];
    const task = { targets, seed, calls: cases };
    const { statuses } = await client.run<{ statuses: Record<string, number> }>('generated-calls', task);
    expect(Object.values(statuses).reduce((sum, count) => sum + count, 0)).toBe(cases);
    // Some documents were missing, and some versions were not the present ones.
    for (const status of ['200', '404', '412']) expect(statuses[status]).toBeGreaterThan(0);
  },
  sizedLimitMs(limitMs(120_000)),
);

test.each(partsOf('client cuts', 1))(
  'connections that are cut off double no write, and lose nothing that is followed or exported (seed $seed)',
  async ({ seed }) => {
    const task = { target: await newTarget(), seed, writes, cuts };
    const done = await client.run<Record<string, number>>('through-cuts', task);
    expect(done['cutsOfWrites']).toBeGreaterThan(10);
    expect(done['cutsOfFollowing']).toBeGreaterThanOrEqual(cuts);
    expect(done['cutsOfExports']).toBeGreaterThanOrEqual(20);
  },
  sizedLimitMs(limitMs(240_000)),
);
