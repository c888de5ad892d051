import { Backoff } from './backoff';
import { Cancellation } from './cancellation';

test('delays are random, and their bound doubles with each failure up to a maximum', () => {
  const longest = new Backoff({ firstMs: 100, maxMs: 1_000 }, () => 1);
  expect(Array.from({ length: 6 }, () => longest.nextMs())).toEqual([100, 200, 400, 800, 1_000, 1_000]);
  expect(longest.failures).toBe(6);
  longest.reset();
  expect([longest.failures, longest.nextMs()]).toEqual([0, 100]);
  const random = new Backoff({ firstMs: 100, maxMs: 1_000 }, () => 0.25);
  expect([random.nextMs(), random.nextMs()]).toEqual([25, 50]);
  // After any number of failures.
  for (let failure = 0; failure < 2_000; failure++) random.nextMs();
  expect(random.nextMs()).toBe(250);
});

test('a wait ends when its signal aborts', async () => {
  const backoff = new Backoff({ firstMs: 3_600_000, maxMs: 3_600_000 }, () => 1);
  const stopped = new Cancellation();
  const waits = [backoff.wait(stopped)];
  stopped.abort();
  waits.push(backoff.wait(stopped));
  await Promise.all(waits);
  expect(backoff.failures).toBe(2);
});
