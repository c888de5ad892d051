import { AppShares, type Share } from './shares';

let nowMs = 0;
const sharesOf = (share: number, more: { lineMax?: number; timeoutMs?: number } = {}) =>
  new AppShares({ share, lineMax: 100, timeoutMs: 60_000, ...more }, () => nowMs);
const settle = () => new Promise((resolve) => setImmediate(resolve));

/** Asks for places and keeps those that it got, in order. */
function visitors(shares: AppShares) {
  const inside: Array<{ name: string; share: Share }> = [];
  const refused: string[] = [];
  return {
    inside: () => inside.map(({ name }) => name),
    refused,
    come: (appId: string, name: string) => {
      const entered = shares.enter(appId);
      if (!(entered instanceof Promise)) return void inside.push({ name, share: entered });
      entered.then(
        (share) => inside.push({ name, share }),
        () => refused.push(name),
      );
    },
    go: async (name: string) => {
      const at = inside.findIndex((one) => one.name === name);
      inside.splice(at, 1)[0]!.share.leave();
      await settle();
    },
  };
}

beforeEach(() => {
  nowMs = 0;
});

test('an app that is alone may take everything', () => {
  const { inside, come } = visitors(sharesOf(2));
  for (let at = 0; at < 50; at++) come('a', `a${at}`);
  expect(inside()).toHaveLength(50);
});

test('while others are there each has its share, and waits for its own requests only', async () => {
  const { inside, come, go } = visitors(sharesOf(2));
  come('b', 'b0');
  await go('b0');
  for (let at = 0; at < 4; at++) come('a', `a${at}`);
  expect(inside()).toEqual(['a0', 'a1']);
  come('b', 'b1');
  expect(inside()).toEqual(['a0', 'a1', 'b1']);
  await go('b1');
  expect(inside()).toEqual(['a0', 'a1']);
  await go('a0');
  expect(inside()).toEqual(['a1', 'a2']);
  // A second after the last request of another app, there is none any more.
  nowMs = 1_001;
  come('a', 'a4');
  expect(inside()).toEqual(['a1', 'a2']);
  await go('a1');
  expect(inside()).toEqual(['a2', 'a3', 'a4']);
});

test('what takes long gives its place to others of its app, and leaving later harms nobody', async () => {
  const { inside, come, go } = visitors(sharesOf(1));
  come('b', 'b0');
  come('a', 'slow');
  come('a', 'a1');
  expect(inside()).toEqual(['b0', 'slow']);
  nowMs = 60;
  // The sweep runs by the real clock.
  await new Promise((resolve) => setTimeout(resolve, 60));
  expect(inside()).toEqual(['b0', 'slow', 'a1']);
  come('a', 'a2');
  await go('slow');
  expect(inside()).toEqual(['b0', 'a1']);
  await go('a1');
  expect(inside()).toEqual(['b0', 'a2']);
});

test('a line that is full refuses, and so does one that does not move; the next finds a place again', async () => {
  const { inside, refused, come, go } = visitors(sharesOf(1, { lineMax: 1, timeoutMs: 20 }));
  come('b', 'b0');
  come('a', 'a0');
  come('a', 'a1');
  expect(() => come('a', 'a2')).toThrow(expect.objectContaining({ reason: 'OVERLOADED' }) as Error);
  nowMs = 21;
  await new Promise((resolve) => setTimeout(resolve, 60));
  expect(refused).toEqual(['a1']);
  await go('a0');
  come('a', 'a3');
  expect(inside()).toEqual(['b0', 'a3']);
});
