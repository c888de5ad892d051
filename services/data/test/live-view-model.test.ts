import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { newApp, type DataService } from './support/data-service';
import { LiveViewModel } from './support/live-view-model';
import { mispredictNewDocuments } from './support/misprediction';
import { seededRandom, type Random } from './support/random';
import { followBy } from './support/view-follower';
import { viewGenerator } from './support/view-generator';
import { startTwoCopies, type TwoCopies } from './support/write-fixture';

const viewCount = size({ run: 64, long: 100_000 });
/** As many live views as a collection may have. */
const viewsPerApp = 16;
const batches = 30;

let copies: TwoCopies;
let existed: jest.SpyInstance;
beforeAll(async () => {
  existed = mispredictNewDocuments();
  copies = await startTwoCopies();
  // Views that were broken on the way and are whole again by now.
  await copies.pool.query(`
    create table broken_view (name text);
    create function keep_broken_view() returns trigger language plpgsql as
      $$ begin insert into public.broken_view values (new.name); return null; end $$;
    create trigger keep_broken_view after update on view for each row when (new.status = 'broken')
      execute function keep_broken_view()`);
});
afterAll(async () => {
  jest.restoreAllMocks();
  await copies.stop();
});

async function runModel(run: number, views: number, random: Random): Promise<void> {
  const { one, two, pool } = copies;
  const methods = [one, two].map(({ methods: of }: DataService) => ({
    ...of,
    follow: followBy(of.readChanges, 8_000),
  }));
  const app = await newApp(one);
  const model = new LiveViewModel({ copies: methods, pool, random, generator: viewGenerator(random) }, app);
  await model.createCollections();
  await model.changeDocuments();
  // Some of the views are built while documents are there, and some while they change.
  await model.createViews(Math.floor(views / 2));
  await model.beside(() => model.createViews(Math.ceil(views / 2)));
  for (let batch = 0; batch < batches; batch += 1) {
    await model.change();
    await model.check({ run, batch });
  }
  await model.checkLazy();
  await model.checkReady();
  await model.checkComputed();
  expect(model.comparisons.withFollowers).toBeGreaterThan(0);
}

test.each(partsOf('live views', viewCount))(
  'after each acknowledged change each of $cases live views has exactly the rows of its meaning, as a lazy view of the same definition (seed $seed)',
  async ({ seed, cases }) => {
    const random = seededRandom(seed);
    for (let made = 0, run = 0; made < cases; made += viewsPerApp, run += 1) {
      await runModel(run, Math.min(viewsPerApp, cases - made), random);
    }
    expect((await copies.pool.query('select name from broken_view')).rows).toEqual([]);
    expect(existed).toHaveBeenCalled();
  },
);
