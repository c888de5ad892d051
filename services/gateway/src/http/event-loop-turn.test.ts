import { endOfTurn } from './event-loop-turn';

test('all who wait in one turn go on together, after what the turn still does, and before the next turn', async () => {
  const order: string[] = [];
  const waits = ['first', 'second'].map(async (name) => {
    await endOfTurn();
    order.push(name);
  });
  // Asked for in the same phase, so it comes after them.
  const next = new Promise<void>((resolve) => {
    setImmediate(() => {
      order.push('next immediate');
      resolve();
    });
  });
  queueMicrotask(() => order.push('microtask'));
  process.nextTick(() => order.push('tick'));
  order.push('now');
  await Promise.all([...waits, next]);
  expect(order.slice(0, 1)).toEqual(['now']);
  expect(order.slice(1, 3).sort()).toEqual(['microtask', 'tick']);
  expect(order.slice(3)).toEqual(['first', 'second', 'next immediate']);
});

test('who waits while others go on waits for the next turn', async () => {
  const order: string[] = [];
  await Promise.all(
    ['a', 'b'].map(async (name) => {
      for (const round of [1, 2, 3]) {
        await endOfTurn();
        order.push(name + round);
      }
    }),
  );
  expect(order).toEqual(['a1', 'b1', 'a2', 'b2', 'a3', 'b3']);
});
