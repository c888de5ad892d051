import { sizeClassOf, type PendingWrite, type Write } from './write';
import { WriteQueue } from './write-queue';

const small = 1_000;
const bulk = 400_000;

function pending(ticketId: string, bytes: number, key?: string): PendingWrite {
  const idempotency =
    key === undefined ? undefined : { caller: 'k', method: 'POST', path: '/store', key, contentHash: Buffer.alloc(32) };
  const write = {
    ticketId,
    bytes,
    idempotency,
    sizeClass: sizeClassOf(bytes),
    operation: 'store',
    collections: ['c'],
    userAddress: null,
  };
  return { write: write as unknown as Write, resolve: () => {}, reject: () => {} };
}

const tickets = (batch: readonly PendingWrite[]): string[] => batch.map(({ write }) => write.ticketId);
const noneBlocked = () => false;

function batches(queue: WriteQueue): string[][] {
  const taken: string[][] = [];
  while (queue.size > 0) taken.push(tickets(queue.takeSmall(noneBlocked)));
  return taken;
}

test('bulks are taken one by one, small writes together, and blocked ones wait', () => {
  const queue = new WriteQueue();
  for (const name of ['b1', 'b2']) queue.add(pending(name, bulk));
  for (const name of ['s1', 's2', 's3']) queue.add(pending(name, small));
  expect(tickets(queue.takeSmall(({ ticketId }) => ticketId === 's2'))).toEqual(['s1', 's3']);
  expect(queue.hasBlocked).toBe(true);
  expect(tickets([queue.nextBulk!, queue.takeBulk(), queue.takeBulk()])).toEqual(['b1', 'b1', 'b2']);
  expect(queue.nextBulk).toBeUndefined();
  expect(tickets(queue.takeSmall(noneBlocked))).toEqual(['s2']);
  expect([queue.size, queue.hasBlocked]).toEqual([0, false]);
});

test('a wait for writes ends with the next one', async () => {
  const queue = new WriteQueue();
  const events: string[] = [];
  const added = queue.added().then(() => events.push('added'));
  await Promise.resolve();
  expect(events).toEqual([]);
  queue.add(pending('a', small));
  await added;
  expect(events).toEqual(['added']);
});

test('a batch closes at 500 writes and at 1 MiB', () => {
  const many = new WriteQueue();
  for (let at = 0; at < 1_001; at++) many.add(pending(`t${at}`, 10));
  expect(batches(many).map(({ length }) => length)).toEqual([500, 500, 1]);
  const large = new WriteQueue();
  for (let at = 0; at < 20; at++) large.add(pending(`t${at}`, 100_000));
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
    queue.add(pending(ticket!, small, key));
  expect(batches(queue)).toEqual([['a', 'c'], ['b'], ['d']]);
});

test('of two writes whose companion changes are of one subject the second waits for the next batch', () => {
  const queue = new WriteQueue();
  const of = (ticketId: string, subject: string): PendingWrite => {
    const { write, ...others } = pending(ticketId, small);
    const companion = { subject, refusal: () => Promise.resolve(undefined), steps: () => [] };
    return { ...others, write: { ...write, companion } };
  };
  for (const one of [of('a1', 'a'), of('b1', 'b'), of('a2', 'a'), pending('c', small), of('a3', 'a')]) queue.add(one);
  expect(batches(queue)).toEqual([['a1', 'b1', 'c'], ['a2'], ['a3']]);
});

test('a full queue refuses writes until there is room', () => {
  const queue = new WriteQueue();
  for (let at = 0; at < 5_000; at++) queue.add(pending(`t${at}`, 10));
  const refused = 'Too many writes of this app are waiting';
  expect(() => queue.add(pending('more', 10))).toThrow(refused);
  queue.takeSmall(noneBlocked);
  queue.add(pending('more', 10));
  const heavy = new WriteQueue();
  for (let at = 0; at < 13; at++) heavy.add(pending(`t${at}`, 5 * 1024 * 1024));
  expect(() => heavy.add(pending('more', 1))).toThrow(refused);
});
