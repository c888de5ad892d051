import { newTicket } from '@granary/shared/ids';
import { createPool, row, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { serviceDatabase } from '@granary/testing/service-database';
import { eventually } from '@granary/testing/eventually';
import { dataSchema } from '../src/service';
import { log, newApp, startDataService, storeRequest, type App, type DataService } from './support/data-service';

let data: DataService;
let pool: Pool;
let app: App;
beforeAll(async () => {
  const { url } = await serviceDatabase(dataSchema);
  data = await startDataService(url, { MAINTENANCE_EVERY_MS: '1000' });
  pool = createPool({ url, size: 2, applicationName: 'test', log });
});
afterAll(async () => {
  await pool.end();
  await data.stop();
});
beforeEach(async () => {
  app = await newApp(data);
});

const heldStore = (id: string) => storeRequest(app, 'notes', [{ id }], { isHeld: true });
const close = ({ ticketId }: { ticketId: string }) => data.methods.closeWrite({ ticketId });
const height = async () =>
  (await data.methods.listCommits({ appId: app.appId, from: '0', limit: 1, cursor: '', texts: false })).json;

test('a write that committed is never closed, and one that is closed never commits, however often both are asked', async () => {
  const [first, second] = [heldStore('one'), heldStore('two')];
  await data.methods.store(first);
  expect([await close(first), await close(first)]).toEqual([{ committed: true }, { committed: true }]);
  expect((await data.methods.store(first)).ticketId).toBe(first.ticketId);
  expect([await close(second), await close(second)]).toEqual([{ committed: false }, { committed: false }]);
  const before = await height();
  for (let attempt = 0; attempt < 2; attempt++) {
    await expect(data.methods.store(second)).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  }
  expect(await height()).toEqual(before);
});

test('of writes and their closing at the same time each commits or is closed, and writes beside them commit', async () => {
  await data.methods.store(storeRequest(app, 'notes', [{ id: 'first' }]));
  const requests = Array.from({ length: 100 }, (_, at) => heldStore(`held-${at}`));
  const beside = Array.from({ length: 50 }, (_, at) => storeRequest(app, 'notes', [{ id: `beside-${at}` }]));
  const stored = (request: ReturnType<typeof heldStore>) =>
    data.methods.store(request).then(
      () => true,
      () => false,
    );
  const [outcomes, others] = await Promise.all([
    Promise.all(requests.map(async (request) => Promise.all([stored(request), close(request)]))),
    Promise.all(beside.map(stored)),
  ]);
  expect(others).toEqual(others.map(() => true));
  expect(outcomes.map(([isStored]) => isStored)).toEqual(outcomes.map(([, { committed }]) => committed));
});

test('what is no ticket of a write is refused, and of an application that is not there nothing is committed', async () => {
  for (const ticketId of ['', 'c1', newTicket('p', 0n)]) {
    await expect(close({ ticketId })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
  }
  expect(await close({ ticketId: newTicket('c', 4_711n) })).toEqual({ committed: false });
});

test('what is known of held writes is forgotten once nobody can ask any more', async () => {
  const [closed, done] = [newTicket('c', app.number), newTicket('j', app.number)];
  await close({ ticketId: closed });
  await pool.query('insert into held_write (ticket_id, is_done) values ($1, true)', [done]);
  await pool.query(`update held_write set at = now() - interval '3 days' where ticket_id in ($1, $2)`, [closed, done]);
  const isKnown = async (ticketId: string) =>
    (await row(pool, sql`select from held_write where ticket_id = ${ticketId}`)) !== undefined;
  await eventually(async () => !(await isKnown(closed)));
  expect(await isKnown(done)).toBe(true);
  await pool.query(`update held_write set at = now() - interval '61 days' where ticket_id = $1`, [done]);
  await eventually(async () => !(await isKnown(done)));
});
