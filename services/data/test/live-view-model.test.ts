import { limitMs } from '@granary/testing/speed';
import { newApp, type DataService } from './support/data-service';
import { LiveViewModel, modelCounts } from './support/live-view-model';
import { seededRandom } from './support/random';
import { viewGenerator } from './support/view-generator';
import { startTwoCopies, type TwoCopies } from './support/write-fixture';

const seed = Number(process.env['VIEWS_SEED'] ?? 16);
const viewCount = Number(process.env['VIEWS_COUNT'] ?? (process.env['TEST_LONG'] ? 100_000 : 512));
/** As many live views as a collection may have. */
const viewsPerApp = 16;
const batches = 30;
const random = seededRandom(seed);
const generator = viewGenerator(random);

let copies: TwoCopies;
beforeAll(async () => {
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
  await copies.stop();
  if (process.env['VIEWS_COUNTS']) console.log(modelCounts);
});

async function runModel(run: number, views: number, { one, two, pool }: TwoCopies): Promise<void> {
  const methods = [one, two].map((copy: DataService) => copy.methods);
  const app = await newApp(one);
  const model = new LiveViewModel({ copies: methods, pool, random, generator }, app);
  await model.createCollections();
  await model.changeDocuments();
  // Some of the views are built while documents are there, and some while they change.
  await model.createViews(Math.floor(views / 2));
  await model.beside(() => model.createViews(Math.ceil(views / 2)));
  for (let batch = 0; batch < batches; batch += 1) {
    await model.change();
    await model.check({ seed, run, batch });
  }
  await model.checkLazy();
  await model.checkReady();
  await model.checkComputed();
}

test(
  'after each acknowledged change every live view has exactly the rows of its meaning, as a lazy view of the same definition',
  async () => {
    for (let made = 0, run = 0; made < viewCount; made += viewsPerApp, run += 1) {
      await runModel(run, Math.min(viewsPerApp, viewCount - made), copies);
    }
    expect((await copies.pool.query('select name from broken_view')).rows).toEqual([]);
  },
  limitMs(process.env['TEST_LONG'] ? 43_200_000 : 600_000),
);
