import { Recent } from '../../../data/src/catalog/cache';

let nowMs = 0;
beforeEach(() => {
  nowMs = 0;
});

const settle = () => new Promise((resolve) => setImmediate(resolve));

/** Look-ups that end when they are told to; each gives its number. */
function lookUps() {
  const waiting: Array<{ resolve: (found: number | undefined) => void; reject: (error: Error) => void }> = [];
  let begun = 0;
  const recent = new Recent<number>(
    () => {
      begun += 1;
      return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
    },
    () => nowMs,
  );
  return {
    recent,
    begun: () => begun,
    end: async (number?: number) => {
      waiting.shift()!.resolve(number);
      await settle();
    },
    fail: async () => {
      waiting.shift()!.reject(new Error('no'));
      await settle();
    },
  };
}

test('where reads keep coming what is known is renewed in time, and none of them waits for that', async () => {
  const { recent, begun, end } = lookUps();
  const first = recent.get('a', 'c');
  await end(1);
  expect(await first).toBe(1);
  nowMs = 149;
  expect(await recent.get('a', 'c')).toBe(1);
  expect(begun()).toBe(1);
  nowMs = 150;
  expect(await recent.get('a', 'c')).toBe(1);
  expect(await recent.get('a', 'c')).toBe(1);
  expect(begun()).toBe(2);
  nowMs = 200;
  await end(2);
  expect(await recent.get('a', 'c')).toBe(2);
  // It is as old as its look-up, so it would be renewed at 300.
  nowMs = 299;
  expect(await recent.get('a', 'c')).toBe(2);
  expect(begun()).toBe(2);
});

test('nobody gets what is older than a quarter of a second, also when its renewal takes long or fails', async () => {
  const { recent, begun, end, fail } = lookUps();
  const first = recent.get('a', 'c');
  await end(1);
  await first;
  nowMs = 150;
  await recent.get('a', 'c');
  await fail();
  expect(await recent.get('a', 'c')).toBe(1);
  expect(begun()).toBe(3);
  nowMs = 250;
  const late = recent.get('a', 'c');
  expect(begun()).toBe(4);
  // The renewal that is out of date by now changes nothing.
  await end(3);
  await end(4);
  expect(await late).toBe(4);
  expect(await recent.get('a', 'c')).toBe(4);
});

test('what was forgotten does not come back by a renewal that began before', async () => {
  const { recent, begun, end } = lookUps();
  const first = recent.get('a', 'c');
  await end(1);
  await first;
  nowMs = 150;
  await recent.get('a', 'c');
  recent.forget('a');
  await end(2);
  const anew = recent.get('a', 'c');
  expect(begun()).toBe(3);
  await end(3);
  expect(await anew).toBe(3);
});

test('who wants it as it is now gets a look-up that began after the call, shared with those who came meanwhile', async () => {
  const { recent, begun, end, fail } = lookUps();
  const first = recent.getNow('a', 'c');
  const others = [recent.getNow('a', 'c'), recent.getNow('a', 'c')];
  const elsewhere = recent.getNow('b', 'c');
  expect(begun()).toBe(2);
  await end(1);
  await end(2);
  expect([await first, await elsewhere]).toEqual([1, 2]);
  expect(begun()).toBe(3);
  const last = recent.getNow('a', 'c');
  const failures = others.map((other) => expect(other).rejects.toThrow('no'));
  await fail();
  await Promise.all(failures);
  expect(begun()).toBe(4);
  await end(4);
  expect(await last).toBe(4);
  const after = recent.getNow('a', 'c');
  expect(begun()).toBe(5);
  await end();
  expect(await after).toBeUndefined();
});
