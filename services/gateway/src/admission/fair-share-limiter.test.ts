import { AppShares, type Share } from './fair-share-limiter';

let nowMs = 0;
const sharesOf = (share: number, more: { lineMax?: number; timeoutMs?: number } = {}) =>
  new AppShares({ share, answerBytes: 1_000, lineMax: 100, timeoutMs: 60_000, ...more }, () => nowMs);
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
    go: async (name: string, answerBytes = 0) => {
      const at = inside.findIndex((one) => one.name === name);
      inside.splice(at, 1)[0]!.share.leave(answerBytes);
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
  nowMs = 251;
  // The sweep runs by the real clock.
  await new Promise((resolve) => setTimeout(resolve, 60));
  expect(inside()).toEqual(['b0', 'slow', 'a1']);
  come('a', 'a2');
  await go('slow');
  expect(inside()).toEqual(['b0', 'a1']);
  await go('a1');
  expect(inside()).toEqual(['b0', 'a2']);
});

test('an app with large answers has a smaller share, but always one, and the whole again once they are small', async () => {
  const { inside, come, go } = visitors(sharesOf(4));
  come('b', 'b0');
  const ofA = () => inside().filter((name) => name !== 'b0');
  come('a', 'keeps it known');
  for (let at = 0; at < 20; at++) {
    come('a', 'large');
    await go('large', 450);
  }
  for (let at = 1; at <= 6; at++) come('a', `a${at}`);
  expect(ofA()).toEqual(['keeps it known', 'a1']);
  await go('a1', 90_000);
  await go('keeps it known', 90_000);
  expect(ofA()).toEqual(['a2']);
  for (const name of ['a2', 'a3', 'a4', 'a5']) await go(name);
  expect(ofA()).toEqual(['a6']);
  for (let at = 7; at < 70; at++) {
    come('a', `a${at}`);
    await go(`a${at - 1}`);
  }
  for (let at = 70; at < 80; at++) come('a', `a${at}`);
  expect(ofA()).toEqual(['a69', 'a70', 'a71', 'a72']);
  while (ofA().length > 0) await go(ofA()[0]!);
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
