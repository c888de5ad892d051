import { PartBuffers } from './part-buffers';

test('there are never more buffers than agreed, and those who wait get them in their turn', async () => {
  const buffers = new PartBuffers(10, 2, 60_000);
  const [first, second] = [buffers.tryTake()!, buffers.tryTake()!];
  expect([first.length, second.length, buffers.tryTake()]).toEqual([10, 10, undefined]);
  const turns: string[] = [];
  const waiting = ['third', 'fourth'].map(async (name) => {
    const buffer = await buffers.take();
    turns.push(name);
    return buffer;
  });
  buffers.give(second);
  expect(await waiting[0]).toBe(second);
  // One that may still be referred to is not passed on, the right to one is.
  buffers.giveUp();
  const fresh = (await waiting[1])!;
  expect([first, second]).not.toContain(fresh);
  expect([turns, fresh.length, buffers.tryTake()]).toEqual([['third', 'fourth'], 10, undefined]);
  buffers.give(fresh);
  expect(buffers.tryTake()).toBe(fresh);
});

test('whoever waits for too long is refused for now, and does not take a buffer later', async () => {
  const buffers = new PartBuffers(10, 1, 20);
  const only = buffers.tryTake()!;
  await expect(buffers.take()).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  buffers.give(only);
  expect(buffers.tryTake()).toBe(only);
});

test('buffers that were needed at once serve the next ones, and most of them go when nobody comes', async () => {
  jest.useFakeTimers();
  try {
    const buffers = new PartBuffers(10, 8, 60_000);
    const takeAll = () => Array.from({ length: 8 }, () => buffers.tryTake()!);
    const first = new Set(takeAll());
    for (const buffer of first) buffers.give(buffer);
    const second = takeAll();
    expect(second.every((buffer) => first.has(buffer))).toBe(true);
    for (const buffer of second) buffers.give(buffer);
    await jest.advanceTimersByTimeAsync(5_000);
    expect(takeAll().filter((buffer) => first.has(buffer)).length).toBe(4);
  } finally {
    jest.useRealTimers();
  }
});
