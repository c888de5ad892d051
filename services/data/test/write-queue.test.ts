import { WriteQueue, type Waiting, type Write } from '../src/commit/write-queue';

const small = 1_000;
const bulk = 400_000;

function waiting(ticketId: string, bytes: number, key?: string): Waiting {
  const idempotency =
    key === undefined ? undefined : { caller: 'k', method: 'POST', path: '/store', key, contentHash: Buffer.alloc(32) };
  const write = { ticketId, bytes, idempotency, operation: 'store', collection: 'c', userAddress: null };
  return { write: write as unknown as Write, resolve: () => {}, reject: () => {} };
}

const tickets = (batch: readonly Waiting[]): string[] => batch.map(({ write }) => write.ticketId);
const nobody = () => false;

function batches(queue: WriteQueue): string[][] {
  const taken: string[][] = [];
  while (queue.size > 0) taken.push(tickets(queue.takeSmall(nobody)));
  return taken;
}

test('bulks are taken one by one, small writes together, and those that are held wait', () => {
  const queue = new WriteQueue();
  for (const name of ['b1', 'b2']) queue.add(waiting(name, bulk));
  for (const name of ['s1', 's2', 's3']) queue.add(waiting(name, small));
  expect(tickets(queue.takeSmall(({ ticketId }) => ticketId === 's2'))).toEqual(['s1', 's3']);
  expect(tickets([queue.nextBulk!, queue.takeBulk(), queue.takeBulk()])).toEqual(['b1', 'b1', 'b2']);
  expect(queue.nextBulk).toBeUndefined();
  expect(tickets(queue.takeSmall(nobody))).toEqual(['s2']);
  expect(queue.size).toBe(0);
});

test('whoever waits for a write hears of the next one', async () => {
  const queue = new WriteQueue();
  const heard: string[] = [];
  const added = queue.added().then(() => heard.push('added'));
  await Promise.resolve();
  expect(heard).toEqual([]);
  queue.add(waiting('a', small));
  await added;
  expect(heard).toEqual(['added']);
});

test('a batch closes at 500 writes and at 1 MiB', () => {
  const many = new WriteQueue();
  for (let at = 0; at < 1_001; at++) many.add(waiting(`t${at}`, 10));
  expect(batches(many).map(({ length }) => length)).toEqual([500, 500, 1]);
  const large = new WriteQueue();
  for (let at = 0; at < 20; at++) large.add(waiting(`t${at}`, 100_000));
  expect(batches(large).map(({ length }) => length)).toEqual([10, 10]);
});

test('a second use of an Idempotency-Key waits for the next batch', () => {
  const queue = new WriteQueue();
  for (const [ticket, key] of [
    ['a', 'x'],
    ['b', 'x'],
    ['c', 'y'],
    ['d', 'x'],
  ])
    queue.add(waiting(ticket!, small, key));
  expect(batches(queue)).toEqual([['a', 'c'], ['b'], ['d']]);
});

test('what does not fit is refused, and fits once there is room', () => {
  const queue = new WriteQueue();
  for (let at = 0; at < 5_000; at++) queue.add(waiting(`t${at}`, 10));
  const refused = 'Too many writes of this app are waiting';
  expect(() => queue.add(waiting('more', 10))).toThrow(refused);
  queue.takeSmall(nobody);
  queue.add(waiting('more', 10));
  const heavy = new WriteQueue();
  for (let at = 0; at < 13; at++) heavy.add(waiting(`t${at}`, 5 * 1024 * 1024));
  expect(() => heavy.add(waiting('more', 1))).toThrow(refused);
});
