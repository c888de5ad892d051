import { CopyTurns } from './copy-turns';

/** Turns with a clock of their own; `taken` are the numbers of those whose turn has come. */
function fixture(beside: number) {
  let nowMs = 10_000;
  const turns = new CopyTurns(beside, () => nowMs);
  const taken: number[] = [];
  return {
    turns,
    taken,
    take: async (...numbers: number[]) => {
      for (const number of numbers) void turns.take().then(() => taken.push(number));
      await Promise.resolve();
    },
    end: async () => {
      turns.end();
      await Promise.resolve();
    },
    pass: (ms: number) => (nowMs += ms),
  };
}

test('all may copy while no small write comes', async () => {
  const { taken, take } = fixture(1);
  await take(1, 2, 3);
  expect(taken).toEqual([1, 2, 3]);
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
  turns.note();
  await take(1, 2, 3);
  pass(1_001);
  await end();
  expect(taken).toEqual([1, 2, 3]);
});

test('nobody waits for ever for one who is stuck', async () => {
  jest.useFakeTimers();
  try {
    const { turns, taken, take, end } = fixture(1);
    turns.note();
    await take(1, 2, 3);
    await jest.advanceTimersByTimeAsync(999);
    expect(taken).toEqual([1]);
    await jest.advanceTimersByTimeAsync(1);
    expect(taken).toEqual([1, 2, 3]);
    // All three copy now, and each ends for himself.
    await take(4);
    await end();
    await end();
    expect(taken).toEqual([1, 2, 3]);
    await end();
    expect(taken).toEqual([1, 2, 3, 4]);
  } finally {
    jest.useRealTimers();
  }
});
