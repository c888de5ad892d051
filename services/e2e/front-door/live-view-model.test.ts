import { createLogger } from '@granary/shared/logger';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { LiveViewModel } from '../../data/test/support/live-view-model';
import { seededRandom, type Random } from '../../data/test/support/random';
import { viewGenerator } from '../../data/test/support/view-generator';
import { newApp, type Granary } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { methodsByHttp, type Tickets } from './view-model-by-http';

/**
 * The model of services/data/test/live-view-model.test.ts by HTTP, on two gateways with a data service each: after each
 * acknowledged change the live views are compared also with lazy views of their definitions, filled anew.
 */
const appCount = size({ run: 1, long: 400 });
const viewsPerApp = 6;
const batches = 8;

let granaries: Granary[] = [];
let pool: Pool;
beforeAll(async () => {
  const one = await startGranary('direct');
  granaries = [one, await startGranary('wire', { databaseUrls: { data: one.databaseUrls.data } })];
  const log = createLogger('test', 'silent');
  pool = createPool({ url: one.databaseUrls.data, size: 2, applicationName: 'test', log });
});
afterAll(async () => {
  await pool?.end();
  for (const granary of granaries) await granary.stop();
});

async function runModel(run: number, random: Random): Promise<void> {
  const { appId, key } = await newApp(granaries[0]!);
  const { rows } = await pool.query<{ number: string }>('select number::text from application where app_id = $1', [
    appId,
  ]);
  const tickets: Tickets = new Map();
  const copies = granaries.map(({ url }) => methodsByHttp({ url, key }, tickets));
  const context = { copies, pool, random, generator: viewGenerator(random) };
  const model = new LiveViewModel(context, { appId, number: BigInt(rows[0]!.number) });
  await model.createCollections();
  await model.changeDocuments();
  await model.createViews(viewsPerApp / 2);
  await model.beside(() => model.createViews(viewsPerApp / 2));
  for (let batch = 0; batch < batches; batch += 1) {
    await model.change();
    await model.check({ run, batch });
    await model.checkLazy();
  }
  await model.checkReady();
  const least = viewsPerApp * batches;
  expect(model.comparisons.withMeanings).toBeGreaterThanOrEqual(least);
  expect(model.comparisons.withLazyViews).toBeGreaterThanOrEqual(least);
}

test.each(partsOf('live views by HTTP', appCount))(
  'by HTTP every live view has after each change the rows of its meaning and of a lazy view that is filled then (apps: $cases, seed $seed)',
  async ({ seed, cases }) => {
    const random = seededRandom(seed);
    for (let run = 0; run < cases; run += 1) await runModel(run, random);
  },
);
