import { newTicket } from '@granary/shared/ids';
import { eventually } from '@granary/testing/eventually';
import { newApp, storeRequest, type DataService } from './support/data-service';
import { LiveViewModel } from './support/live-view-model';
import { parse } from './support/query-fixture';
import { seededRandom } from './support/random';
import { followBy, ViewFollower } from './support/view-follower';
import { viewGenerator } from './support/view-generator';
import { startTwoCopies, type TwoCopies } from './support/write-fixture';

// As if tables of some rows were large: their rows are not logged while writers wait.
jest.mock('../src/views/row-log', () => ({
  ...jest.requireActual<object>('../src/views/row-log'),
  loggedAtOnceMax: 2n,
}));

let copies: TwoCopies;
beforeAll(async () => {
  copies = await startTwoCopies();
});
afterAll(() => copies.stop());

const methodsOf = ({ methods }: DataService) => ({ ...methods, follow: followBy(methods.readChanges, 8_000) });

test('large views are followed through writes and builds', async () => {
  const random = seededRandom(20_261_130);
  const app = await newApp(copies.one);
  const context = { copies: [copies.one, copies.two].map(methodsOf), pool: copies.pool, random };
  const model = new LiveViewModel({ ...context, generator: viewGenerator(random) }, app);
  await model.createCollections();
  await model.changeDocuments();
  await model.beside(() => model.createViews(12));
  for (let batch = 0; batch < 40; batch += 1) {
    await model.change();
    await model.check({ batch });
  }
  expect(model.comparisons.withFollowers).toBeGreaterThan(40);
});

test('the changes of a large view are switched on by a build', async () => {
  const app = await newApp(copies.one);
  const { methods } = copies.one;
  const { appId, number } = app;
  const documents = Array.from({ length: 5 }, (_, index) => ({ id: `k${index}` }));
  await methods.store(storeRequest(app, 'base', JSON.stringify(documents)));
  const view = { appId, name: 'all', queryJson: Buffer.from('{}'), sourceCollections: ['base'] };
  const more = { refreshMode: 'live', variablesJson: Buffer.from(''), readAccess: '', appNumber: number.toString() };
  const made = await methods.createView({ ...view, ...more, ticketId: newTicket('j', number) });
  const completed = (ticketId: string) =>
    eventually(async () => (await methods.getJob({ ticketId })).status === 'Completed');
  await completed(made.ticketId);
  const same = { queryJson: Buffer.alloc(0), sourceCollections: [], refreshMode: '', variablesJson: Buffer.alloc(0) };
  const ticketId = newTicket('j', number);
  const changed = await methods.changeView({
    appId,
    name: 'all',
    ...same,
    readAccess: '',
    ticketId,
    keepsChanges: true,
  });
  expect(changed.ticketId).toBe(ticketId);
  await completed(ticketId);
  await methods.store(storeRequest(app, 'base', JSON.stringify([{ id: 'k1', deleted: true }, { id: 'new' }])));
  const follower = new ViewFollower(appId, 'all');
  const rows = await follower.catchUp(followBy(methods.readChanges, 1_000), seededRandom(1));
  const page = await methods.readView({ appId, name: 'all', parameters: [], mayReadPrivate: true });
  const texts = (records: unknown[]) => records.map((record) => JSON.stringify(record)).sort();
  expect(texts(rows)).toEqual(texts(parse(page).records));
  expect(rows).toHaveLength(5);
});
