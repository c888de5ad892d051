import { FairLimiter } from './fair-limiter';

const refused = new Error('refused');
const turn = () => new Promise((resolve) => setImmediate(resolve));

function limiterOf(limits: Partial<ConstructorParameters<typeof FairLimiter>[0]> = {}) {
  const limiter = new FairLimiter(
    { concurrency: 1, queueMax: 10, queuePerKeyMax: 10, timeoutMs: 60_000, ...limits },
    () => refused,
  );
  const begun: string[] = [];
  const ends: Array<() => void> = [];
  const run = (key: string, name: string) =>
    limiter.run(key, () => {
      begun.push(name);
      return new Promise<string>((resolve) => ends.push(() => resolve(name)));
    });
  return { limiter, begun, ends, run };
}

test('works wait for their turn, taken from one key after the other', async () => {
  const { limiter, begun, ends, run } = limiterOf();
  const all = [run('a', 'a1'), run('a', 'a2'), run('a', 'a3'), run('b', 'b1'), run('b', 'b2')];
  expect(limiter.counts()).toEqual({ running: 1, waiting: 4 });
  for (let at = 0; at < all.length; at += 1) {
    ends[at]!();
    await turn();
  }
  expect(await Promise.all(all)).toEqual(['a1', 'a2', 'a3', 'b1', 'b2']);
  expect(begun).toEqual(['a1', 'a2', 'b1', 'a3', 'b2']);
  expect(limiter.counts()).toEqual({ running: 0, waiting: 0 });
});

test('what finds the queue full, in total or of its key, is refused at once', async () => {
  const { ends, run } = limiterOf({ queueMax: 2, queuePerKeyMax: 1 });
  const first = run('a', 'first');
  const second = run('a', 'second');
  await expect(run('a', 'third')).rejects.toBe(refused);
  const other = run('b', 'other');
  await expect(run('c', 'another')).rejects.toBe(refused);
  for (let at = 0; at < 3; at += 1) {
    ends[at]!();
    await turn();
  }
  expect(await Promise.all([first, second, other])).toEqual(['first', 'second', 'other']);
});

test('what waits too long is refused, and a work that fails frees its place', async () => {
  const { limiter, begun, ends, run } = limiterOf({ timeoutMs: 20 });
  const first = run('a', 'first');
  await expect(run('a', 'late')).rejects.toBe(refused);
  ends[0]!();
  await first;
  const failure = new Error('failure');
  await expect(limiter.run('a', () => Promise.reject(failure))).rejects.toBe(failure);
  expect([begun, limiter.counts()]).toEqual([['first'], { running: 0, waiting: 0 }]);
});
