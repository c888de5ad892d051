import { CopyTurns } from './bulk-throttle';

/** Turns with a clock of their own; `taken` are the numbers of those whose turn has come. */
function fixture(beside: number) {
  jest.useFakeTimers({ now: 0 });
  const turns = new CopyTurns(beside, () => Date.now());
  const taken: number[] = [];
  const ends: Array<() => void> = [];
  const settle = () => jest.advanceTimersByTimeAsync(0);
  return {
    turns,
    taken,
    take: async (...numbers: number[]) => {
      for (const number of numbers) {
        void turns.take().then((end) => {
          taken.push(number);
          ends.push(end);
        });
      }
      await settle();
    },
    /** Ends the turn that began first. */
    end: async () => {
      ends.shift()!();
      await settle();
    },
    pass: (ms: number) => jest.advanceTimersByTimeAsync(ms),
  };
}

afterEach(() => jest.useRealTimers());

test('all may copy while no small write comes, one after the other without a rest', async () => {
  const { turns, taken, take, end, pass } = fixture(1);
  await take(1, 2, 3);
  expect(taken).toEqual([1, 2, 3]);
  await pass(100);
  await end();
  await end();
  await end();
  turns.note();
  await take(4);
  expect(taken).toEqual([1, 2, 3, 4]);
});

test('while small writes come so many copy at a time, in the order in which they asked', async () => {
  const { turns, taken, take, end } = fixture(2);
  turns.note();
  await take(1, 2, 3, 4, 5);
  expect(taken).toEqual([1, 2]);
  await end();
  expect(taken).toEqual([1, 2, 3]);
  await end();
  await end();
  expect(taken).toEqual([1, 2, 3, 4, 5]);
});

test('while small writes come a turn rests for as long as the copy took, but not for ever', async () => {
  const { turns, taken, take, end, pass } = fixture(1);
  turns.note();
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

test('to end a turn again has no effect', async () => {
  const { turns, taken, take } = fixture(1);
  turns.note();
  const end = await turns.take();
  await take(1, 2);
  end();
  end();
  await take();
  expect(taken).toEqual([1]);
});

test('those who had begun before count too', async () => {
  const { turns, taken, take, end } = fixture(1);
  await take(1, 2);
  turns.note();
  await take(3);
  await end();
  expect(taken).toEqual([1, 2]);
  await end();
  expect(taken).toEqual([1, 2, 3]);
});

test('when small writes have not come for a while, all that wait may copy', async () => {
  const { turns, taken, take, end, pass } = fixture(1);
  await take(1);
  await pass(500);
  turns.note();
  await pass(500);
  await take(2, 3);
  await pass(501);
  expect(taken).toEqual([1]);
  await end();
  expect(taken).toEqual([1, 2, 3]);
});

test('nobody waits for ever for one who is stuck', async () => {
  const { turns, taken, take, end, pass } = fixture(1);
  turns.note();
  await take(1, 2, 3);
  await pass(999);
  expect(taken).toEqual([1]);
  turns.note();
  await pass(1);
  expect(taken).toEqual([1, 2, 3]);
  // All three copy now, and each ends for himself.
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
