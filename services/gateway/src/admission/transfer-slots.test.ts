import { TransferSlot, TransferSlots } from './transfer-slots';

const keys = (app: string, address = app) => ({ app, address });
const slotsFor = (queueTimeoutMs: number) => new TransferSlots({ total: 8, perApp: 6, perAddress: 4, queueTimeoutMs });
const refused = { code: 'UNAVAILABLE', reason: 'OVERLOADED' };
const nothing = () => {};

test('one application and one address have only their part of the slots, and others have the rest', async () => {
  const slots = slotsFor(0);
  for (let at = 0; at < 4; at++) await slots.enter(keys('a', '1'), nothing);
  await expect(slots.enter(keys('b', '1'), nothing)).rejects.toMatchObject(refused);
  for (let at = 0; at < 2; at++) await slots.enter(keys('a', '2'), nothing);
  await expect(slots.enter(keys('a', '3'), nothing)).rejects.toMatchObject(refused);
  for (let at = 0; at < 2; at++) await slots.enter(keys('v', '3'), nothing);
  await expect(slots.enter(keys('w', '4'), nothing)).rejects.toMatchObject(refused);
  expect(slots.counts()).toMatchObject({ inside: 8, waiting: 0, limit: 8 });
});

test('a slot that is left goes to the first that may have it, past those of a client that has its part', async () => {
  const slots = slotsFor(60_000);
  const inside: TransferSlot[] = [];
  for (let at = 0; at < 4; at++) inside.push(await slots.enter(keys('a'), nothing));
  for (let at = 0; at < 4; at++) inside.push(await slots.enter(keys('b'), nothing));
  const admitted: string[] = [];
  const waiting = ['a', 'a', 'c'].map(async (app) => {
    const slot = await slots.enter(keys(app), nothing);
    admitted.push(app);
    return slot;
  });
  expect(slots.counts().waiting).toBe(3);
  inside.at(-1)!.leave();
  (await waiting[2]!).leave();
  expect(admitted).toEqual(['c']);
  inside[0]!.leave();
  await waiting[0];
  expect(admitted).toEqual(['c', 'a']);
  inside[1]!.leave();
  await waiting[1];
  expect(slots.counts()).toMatchObject({ inside: 7, waiting: 0, limit: 8 });
});

test('of those that wait, one application is at most half', async () => {
  const slots = slotsFor(60_000);
  for (let at = 0; at < 4; at++) await slots.enter(keys('a', '1'), nothing);
  const waiting = Array.from({ length: 4 }, () => slots.enter(keys('a', '1'), nothing));
  await expect(slots.enter(keys('a', '1'), nothing)).rejects.toMatchObject(refused);
  expect(slots.counts()).toMatchObject({ inside: 4, waiting: 4, limit: 8 });
  expect(waiting).toHaveLength(4);
});

test('a transfer that waited in vain leaves the queue to others, however many there were', async () => {
  const slots = slotsFor(10);
  const inside: TransferSlot[] = [];
  for (let count = 0; count < 4; count++) inside.push(await slots.enter(keys('a'), nothing));
  for (let round = 0; round < 3; round++) {
    const waits = Array.from({ length: 4 }, () => slots.enter(keys('a'), nothing));
    expect(slots.counts().waiting).toBe(4);
    for (const result of await Promise.allSettled(waits)) {
      expect(result).toMatchObject({ status: 'rejected', reason: refused });
    }
    expect(slots.counts()).toMatchObject({ inside: 4, waiting: 0 });
  }
  const wait = slots.enter(keys('a'), nothing);
  inside[0]!.leave();
  (await wait).leave();
  expect(slots.counts()).toMatchObject({ inside: 3, waiting: 0 });
});
