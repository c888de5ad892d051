import { ServiceError } from '@granary/shared/errors';
import { createLogger } from '@granary/shared/logger';
import { eventually } from '@granary/testing/eventually';
import { PendingWrites } from './pending-writes';

const log = createLogger('test', 'silent');

test('a write is tried until it is done, once for a ticket, also when a service is away meanwhile', async () => {
  const pending = new PendingWrites(log);
  const results = [false, new ServiceError('UNAVAILABLE', 'UNAVAILABLE', 'away'), false, true];
  let attempts = 0;
  const attempt = () => {
    const result = results[attempts++]!;
    return result instanceof Error ? Promise.reject(result) : Promise.resolve(result);
  };
  pending.add('p1', attempt);
  pending.add('p1', attempt);
  await eventually(() => Promise.resolve(attempts === results.length));
  // The ticket is free again.
  results.push(true);
  await eventually(() => {
    pending.add('p1', attempt);
    return Promise.resolve(attempts === results.length);
  });
});

test('one that is refused is not tried again, and a stop ends all', async () => {
  const pending = new PendingWrites(log);
  let refused = 0;
  pending.add('p1', () => Promise.reject(new ServiceError('ALREADY_EXISTS', 'UNIQUE_VIOLATION', `${(refused += 1)}`)));
  let tries = 0;
  pending.add('p2', () => Promise.resolve((tries += 1) < 0));
  await eventually(() => Promise.resolve(tries >= 3));
  expect(refused).toBe(1);
  pending.stop();
  const triesAtStop = tries;
  await new Promise((resolve) => setTimeout(resolve, 500));
  expect(tries).toBeLessThanOrEqual(triesAtStop + 1);
});

test('more than it can hold are left to their clients', async () => {
  const pending = new PendingWrites(log);
  const begun = new Set<number>();
  const add = (at: number) =>
    pending.add(`p${at}`, () => {
      begun.add(at);
      return new Promise(() => {});
    });
  const taken = Array.from({ length: 60 }, (_, at) => add(at));
  await eventually(() => Promise.resolve(begun.size > 0));
  expect(begun.size).toBe(50);
  expect(taken).toEqual(taken.map((_, at) => at < 50));
  // One that it has already is not left.
  expect(add(0)).toBe(true);
});
