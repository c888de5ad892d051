import { newTicket } from '@granary/shared/ids';
import type { Pool } from '@granary/shared/postgres/pool';
import { eventually } from '@granary/testing/eventually';
import { checkChain } from './support/check-chain';
import { newApp, noIdempotency, storeRequest, type App, type DataService } from './support/data-service';
import { holdDocument } from './support/hold-document';
import { collectionNumber, sessionWhere, startTwoCopies } from './support/write-fixture';

describe('changes of documents that were read before their transaction', () => {
  let pool: Pool;
  let one: DataService;
  let two: DataService;
  let app: App;
  let stop: () => Promise<void>;
  beforeAll(async () => {
    ({ pool, one, two, stop } = await startTwoCopies());
  });
  afterAll(() => stop());
  beforeEach(async () => {
    app = await newApp(one);
    await store([{ id: 'a' }, { id: 'b' }]);
    // From here on the collection and the head are cached.
    await store([{ id: 'c' }]);
  });
  afterEach(() => checkChain(pool, app));

  const store = (documents: object[]) => one.methods.store(storeRequest(app, 'notes', documents));
  const base = () => ({ appId: app.appId, appNumber: app.number.toString(), collection: 'notes' });
  const patch = (id: string, members: object, copy = one) =>
    copy.methods.changeDocument({
      ...base(),
      id,
      ticketId: newTicket('c', app.number),
      change: 'merge',
      body: Buffer.from(JSON.stringify(members)),
      idempotency: noIdempotency,
    });
  const update = (documents: object[]) => {
    const operations = documents.map((data) => ({ operation: 'update', collection: 'notes', data }));
    return one.methods.batch({
      appId: app.appId,
      appNumber: app.number.toString(),
      ticketId: newTicket('c', app.number),
      body: Buffer.from(JSON.stringify({ operations })),
      idempotency: noIdempotency,
    });
  };
  const erase = (id: string) => one.methods.eraseDocument({ ...base(), id, idempotency: noIdempotency });
  const read = async (id: string) => {
    const { json } = await one.methods.getDocument({ ...base(), id });
    return JSON.parse(json.toString()) as unknown;
  };
  const session = (where: string) => eventually(() => sessionWhere(pool, where));

  it.each([
    ['a patch', () => patch('a', { text: 'late' })],
    ['a batch', () => update([{ id: 'a', text: 'late' }])],
  ])('do not bring back a document that is erased between the read and the transaction: %s', async (_, change) => {
    const release = await holdDocument(pool, app, await collectionNumber(pool, app, 'notes'), 'held');
    const held = store([{ id: 'held' }]);
    await session(`wait_event = 'PgSleep'`);
    const changed = change().catch((error: unknown) => error);
    // It waits for the head, as the transaction of the change will do: whichever gets it first, the document is gone.
    const erased = erase('a');
    await session(`wait_event_type = 'Lock' and query like '%for update%'`);
    // Meanwhile what the change depends on is read, too.
    for (let turn = 0; turn < 10; turn += 1) await read('b');
    await release();
    await Promise.all([held, erased, changed]);
    await expect(read('a')).rejects.toMatchObject({ reason: 'DOCUMENT_NOT_FOUND' });
  });

  it('keep all members that 400 patches of two copies of the service add to two documents', async () => {
    const ids = ['a', 'b'] as const;
    const added = { a: {}, b: {} };
    const add = async (copy: DataService, from: number) => {
      for (let n = from; n < from + 25; n += 1) {
        const id = ids[n % 2]!;
        await patch(id, { [`n${n}`]: n }, copy);
        Object.assign(added[id], { [`n${n}`]: n });
      }
    };
    const lanes = Array.from({ length: 16 }, (_, lane) => add(lane % 8 === 0 ? two : one, lane * 25));
    await Promise.all(lanes);
    for (const id of ids) expect(await read(id)).toEqual({ id, ...added[id] });
  });

  it('follow earlier writes of the same document, in the order in which they came', async () => {
    for (let round = 0; round < 50; round += 1) {
      const [first] = await Promise.all([patch('a', { round, by: 'patch' }), store([{ id: 'a', by: 'store' }])]);
      expect(JSON.parse(first.json.toString())).toMatchObject({ round, by: 'patch' });
      expect(await read('a')).toEqual({ id: 'a', by: 'store' });
    }
  });
});
