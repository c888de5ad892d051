import { BulkThrottle } from './bulk-throttle';

/** A throttle with a clock of its own; `taken` are the numbers of the copies that have begun. */
function fixture(limit: number) {
  jest.useFakeTimers({ now: 0 });
  const throttle = new BulkThrottle(limit, () => Date.now());
  const taken: number[] = [];
  const ends: Array<() => void> = [];
  const settle = () => jest.advanceTimersByTimeAsync(0);
  return {
    throttle,
    taken,
    take: async (...numbers: number[]) => {
      for (const number of numbers) {
        void throttle.acquire().then((end) => {
          taken.push(number);
          ends.push(end);
        });
      }
      await settle();
    },
    /** Releases the slot that was acquired first. */
    end: async () => {
      ends.shift()!();
      await settle();
    },
    pass: (ms: number) => jest.advanceTimersByTimeAsync(ms),
  };
}

afterEach(() => jest.useRealTimers());

test('without small writes all may copy, without a cooldown', async () => {
  const { throttle, taken, take, end, pass } = fixture(1);
  await take(1, 2, 3);
  expect(taken).toEqual([1, 2, 3]);
  await pass(100);
  await end();
  await end();
  await end();
  throttle.noteSmallWrite();
  await take(4);
  expect(taken).toEqual([1, 2, 3, 4]);
});

test('while small writes arrive, a limited number copies at a time, in order of arrival', async () => {
  const { throttle, taken, take, end } = fixture(2);
  throttle.noteSmallWrite();
  await take(1, 2, 3, 4, 5);
  expect(taken).toEqual([1, 2]);
  await end();
  expect(taken).toEqual([1, 2, 3]);
  await end();
  await end();
  expect(taken).toEqual([1, 2, 3, 4, 5]);
});

test('while small writes arrive, a slot cools down for as long as its copy took, but for 200 ms at most', async () => {
  const { throttle, taken, take, end, pass } = fixture(1);
  throttle.noteSmallWrite();
  await take(1, 2, 3, 4);
  await pass(30);
  await end();
  await pass(29);
  expect(taken).toEqual([1]);
  await pass(1);
  expect(taken).toEqual([1, 2]);
  await pass(500);
  await end();
  await pass(199);
  expect(taken).toEqual([1, 2]);
  await pass(1);
  expect(taken).toEqual([1, 2, 3]);
});

test('releasing a slot again has no effect', async () => {
  const { throttle, taken, take } = fixture(1);
  throttle.noteSmallWrite();
  const end = await throttle.acquire();
  await take(1, 2);
  end();
  end();
  await take();
  expect(taken).toEqual([1]);
});

test('copies that began before the small writes count too', async () => {
  const { throttle, taken, take, end } = fixture(1);
  await take(1, 2);
  throttle.noteSmallWrite();
  await take(3);
  await end();
  expect(taken).toEqual([1, 2]);
  await end();
  expect(taken).toEqual([1, 2, 3]);
});

test('a second after the last small write all waiting copies may begin', async () => {
  const { throttle, taken, take, end, pass } = fixture(1);
  await take(1);
  await pass(500);
  throttle.noteSmallWrite();
  await pass(500);
  await take(2, 3);
  await pass(501);
  expect(taken).toEqual([1]);
  await end();
  expect(taken).toEqual([1, 2, 3]);
});

test('no copy waits for others longer than a second', async () => {
  const { throttle, taken, take, end, pass } = fixture(1);
  throttle.noteSmallWrite();
  await take(1, 2, 3);
  await pass(999);
  expect(taken).toEqual([1]);
  throttle.noteSmallWrite();
  await pass(1);
  expect(taken).toEqual([1, 2, 3]);
  // All three copy now, and each releases a slot of its own.
  await take(4);
  await end();
  await pass(200);
  await end();
  await pass(200);
  expect(taken).toEqual([1, 2, 3]);
  await end();
  await pass(200);
  expect(taken).toEqual([1, 2, 3, 4]);
});
