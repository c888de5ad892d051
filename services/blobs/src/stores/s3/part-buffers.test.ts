import { PartBuffers } from './part-buffers';

test('there are never more buffers than the limit, and waiters get them in order', async () => {
  const buffers = new PartBuffers(10, 2, 60_000);
  const [first, second] = [buffers.tryAcquire()!, buffers.tryAcquire()!];
  expect([first.length, second.length, buffers.tryAcquire()]).toEqual([10, 10, undefined]);
  const served: string[] = [];
  const waiting = ['third', 'fourth'].map(async (name) => {
    const buffer = await buffers.acquire();
    served.push(name);
    return buffer;
  });
  buffers.release(second);
  expect(await waiting[0]).toBe(second);
  // A discarded buffer is not reused, but its place is.
  buffers.discard();
  const fresh = (await waiting[1])!;
  expect([first, second]).not.toContain(fresh);
  expect([served, fresh.length, buffers.tryAcquire()]).toEqual([['third', 'fourth'], 10, undefined]);
  buffers.release(fresh);
  expect(buffers.tryAcquire()).toBe(fresh);
});

test('a wait that times out fails as unavailable, and takes no buffer later', async () => {
  const buffers = new PartBuffers(10, 1, 20);
  const only = buffers.tryAcquire()!;
  await expect(buffers.acquire()).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  buffers.release(only);
  expect(buffers.tryAcquire()).toBe(only);
});

test('released buffers are reused, and most of them are freed when they are idle', async () => {
  jest.useFakeTimers();
  try {
    const buffers = new PartBuffers(10, 8, 60_000);
    const acquireAll = () => Array.from({ length: 8 }, () => buffers.tryAcquire()!);
    const first = new Set(acquireAll());
    for (const buffer of first) buffers.release(buffer);
    const second = acquireAll();
    expect(second.every((buffer) => first.has(buffer))).toBe(true);
    for (const buffer of second) buffers.release(buffer);
    await jest.advanceTimersByTimeAsync(5_000);
    expect(acquireAll().filter((buffer) => first.has(buffer)).length).toBe(4);
  } finally {
    jest.useRealTimers();
  }
});
