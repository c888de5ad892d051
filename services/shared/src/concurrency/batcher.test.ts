import { Batcher, type ItemResult } from './batcher';

/** A batcher of numbers that doubles them, and ends each batch only when the test says so. */
function doubling(options: { maxSize?: number; maxWaiting?: number; sizeOf?: (item: number) => number } = {}) {
  const batches: number[][] = [];
  const ends: Array<() => void> = [];
  const batcher = new Batcher<number, number>({
    run: async (items) => {
      batches.push([...items]);
      await new Promise<void>((resolve) => ends.push(resolve));
      if (items.includes(-1)) throw new Error('the whole batch');
      return items.map((item): ItemResult<number> =>
        item === 13 ? { error: new Error('unlucky') } : { value: item * 2 },
      );
    },
    sizeOf: () => 1,
    maxSize: 3,
    maxWaiting: 100,
    refusal: () => new Error('full'),
    ...options,
  });
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  const endBatch = async () => {
    ends.shift()!();
    await turn();
  };
  return { batcher, batches, turn, endBatch };
}

test('items of one turn share a batch, those that come while it runs share the next, and none exceeds its size', async () => {
  const { batcher, batches, turn, endBatch } = doubling();
  const first = [1, 2].map((item) => batcher.submit(item));
  await turn();
  expect(batches).toEqual([[1, 2]]);
  const others = [3, 4, 5, 6].map((item) => batcher.submit(item));
  await turn();
  expect(batches).toHaveLength(1);
  await endBatch();
  expect(await Promise.all(first)).toEqual([2, 4]);
  expect(batches).toEqual([
    [1, 2],
    [3, 4, 5],
  ]);
  await endBatch();
  await endBatch();
  expect(await Promise.all(others)).toEqual([6, 8, 10, 12]);
  await batcher.idle();
  expect(batches).toEqual([[1, 2], [3, 4, 5], [6]]);
});

test('an item larger than a batch is a batch of its own, and the order is kept', async () => {
  const { batcher, batches, turn, endBatch } = doubling({ sizeOf: (item) => item });
  const all = [1, 9, 2].map((item) => batcher.submit(item));
  await turn();
  await endBatch();
  await endBatch();
  await endBatch();
  await Promise.all(all);
  expect(batches).toEqual([[1], [9], [2]]);
});

test('an item fails by itself or with its batch, and the next batch runs', async () => {
  const { batcher, turn, endBatch } = doubling();
  const mixed = [1, 13].map((item) => batcher.submit(item));
  await turn();
  const broken = [-1, 2].map((item) => batcher.submit(item));
  const settled = Promise.allSettled([...mixed, ...broken]);
  await endBatch();
  await endBatch();
  expect((await settled).map((each) => (each.status === 'fulfilled' ? each.value : String(each.reason)))).toEqual([
    2,
    'Error: unlucky',
    'Error: the whole batch',
    'Error: the whole batch',
  ]);
  const next = batcher.submit(4);
  await turn();
  await endBatch();
  expect(await next).toBe(8);
});

test('an item is refused at once when too much waits', async () => {
  const { batcher, turn, endBatch } = doubling({ maxWaiting: 2 });
  const accepted = [1, 2].map((item) => batcher.submit(item));
  await expect(batcher.submit(3)).rejects.toThrow('full');
  await turn();
  // What runs does not wait any more.
  const third = batcher.submit(3);
  await endBatch();
  await endBatch();
  expect(await Promise.all([...accepted, third])).toEqual([2, 4, 6]);
});
