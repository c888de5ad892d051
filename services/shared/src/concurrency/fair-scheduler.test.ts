import { Cancellation } from './cancellation';
import { ActiveApps } from './active-apps';
import { FairScheduler, type ContentionLimits, type FairSchedulerOptions, type TaskOptions } from './fair-scheduler';

let nowMs = 0;
beforeEach(() => {
  nowMs = 0;
});

const refusal = new Error('refused');

/** A scheduler of one slot without other limits, if nothing else is given, and the apps that are active. */
function schedulerOf(options: Partial<FairSchedulerOptions> & ContentionOptions = {}) {
  const { fairShare = Infinity, cooldownFactor = 0, ...limits } = options;
  const activeApps = new ActiveApps();
  const contention = { activeApps, fairShare, cooldownFactor };
  const scheduler = new FairScheduler({ concurrency: 1, contention, refusal: () => refusal, ...limits }, () => nowMs);
  return { activeApps, scheduler, ...tasksOf(scheduler) };
}
type ContentionOptions = Pick<ContentionLimits, 'fairShare' | 'cooldownFactor'>;

const settle = () => new Promise((resolve) => setImmediate(resolve));

/** Tasks that end on demand, and the order in which they started. */
function tasksOf(scheduler: FairScheduler) {
  const begun: string[] = [];
  const ends: Array<() => void> = [];
  const ask = (key: string, name = key, options?: TaskOptions) =>
    scheduler.run(
      key,
      () => {
        begun.push(name);
        return new Promise<string>((resolve) => ends.push(() => resolve(name)));
      },
      options,
    );
  const endNext = async () => {
    while (ends.length === 0) await settle();
    ends.shift()!();
    await settle();
  };
  return { begun, ask, endNext };
}

test('a key with many tasks delays its own tasks, not those of others', async () => {
  const { begun, ask, endNext } = schedulerOf({ concurrency: 3, concurrencyPerKey: 2 });
  const asked = Array.from({ length: 10 }, (_, at) => ask('flood', `flood ${at}`));
  asked.push(ask('calm', 'calm 0'), ask('calm', 'calm 1'), ask('other', 'other 0'));
  await settle();
  expect(begun).toEqual(['flood 0', 'flood 1', 'calm 0']);
  await endNext();
  await endNext();
  // The key that was served least recently comes first.
  expect(begun.slice(3)).toEqual(['other 0', 'flood 2']);
  await endNext();
  expect(begun.slice(5)).toEqual(['calm 1']);
  for (let left = 13 - 3; left > 0; left--) await endNext();
  expect((await Promise.all(asked)).sort()).toEqual([...begun].sort());
  expect(begun).toHaveLength(13);
});

test('a task that fails frees its slot', async () => {
  const { scheduler } = schedulerOf({ concurrencyPerKey: 1, queueMaxPerFlow: 1 });
  for (let round = 0; round < 3; round++) {
    await expect(scheduler.run('a', () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  }
  expect(await scheduler.run('a', () => Promise.resolve(1))).toBe(1);
  expect(scheduler.counts()).toEqual({ running: 0, waiting: 0 });
});

test('a task whose caller has gone leaves the queue, and one that finds it full is refused', async () => {
  const { begun, ask, endNext } = schedulerOf({ queueMaxPerFlow: 2 });
  const gone = new Cancellation();
  const first = ask('a', 'first');
  const second = ask('a', 'second', { signal: gone });
  const third = ask('a', 'third');
  await expect(ask('a', 'fourth')).rejects.toBe(refusal);
  const other = ask('b', 'other');
  gone.abort();
  await expect(second).rejects.toMatchObject({ code: 'CANCELLED' });
  const fifth = ask('a', 'fifth');
  for (let left = 4; left > 0; left--) await endNext();
  await settle();
  expect(await Promise.all([first, third, fifth, other])).toEqual(['first', 'third', 'fifth', 'other']);
  expect(begun).toEqual(['first', 'other', 'third', 'fifth']);
  await expect(ask('a', 'late', { signal: gone })).rejects.toMatchObject({ code: 'CANCELLED' });
  expect(begun).toHaveLength(4);
});

test('the queue is bounded in total too, and a task that waits too long is refused', async () => {
  const { scheduler, begun, ask, endNext } = schedulerOf({ queueMax: 2, queueMaxPerFlow: 1, timeoutMs: 20 });
  const first = ask('a', 'first');
  const late = [ask('a', 'second'), ask('b', 'other')];
  await expect(ask('c', 'another')).rejects.toBe(refusal);
  for (const task of late) await expect(task).rejects.toBe(refusal);
  await endNext();
  expect(await first).toBe('first');
  expect([begun, scheduler.counts()]).toEqual([['first'], { running: 0, waiting: 0 }]);
});

test('a constant arrival of new keys does not starve a key that was served before', async () => {
  const { begun, ask, endNext } = schedulerOf();
  const asked = [ask('a', 'a 0'), ask('a', 'a 1')];
  for (let stranger = 0; stranger < 5; stranger++) {
    asked.push(ask(`new ${stranger}`));
    await endNext();
  }
  expect(begun.slice(0, 3)).toEqual(['a 0', 'new 0', 'a 1']);
  for (let left = 2; left > 0; left--) await endNext();
  expect(await Promise.all(asked)).toHaveLength(7);
});

test('while other keys are active a key has its fair share, and the limit of a key once they are not', async () => {
  const { activeApps, begun, ask, endNext } = schedulerOf({ concurrency: 4, concurrencyPerKey: 3, fairShare: 1 });
  activeApps.see('calm', 0);
  activeApps.see('flood', 0);
  const asked = Array.from({ length: 5 }, (_, at) => ask('flood', `flood ${at}`));
  asked.push(ask('calm', 'calm'));
  await settle();
  expect(begun).toEqual(['flood 0', 'calm']);
  await endNext();
  expect(begun.slice(2)).toEqual(['flood 1']);
  // A second after the others were seen last.
  nowMs = 1_001;
  activeApps.see('flood', nowMs);
  await endNext();
  expect(begun.slice(3)).toEqual(['flood 2', 'flood 3']);
  asked.push(ask('flood', 'flood 5'));
  await settle();
  expect(begun).toHaveLength(5);
  for (let left = 7 - 2; left > 0; left--) await endNext();
  expect((await Promise.all(asked)).sort()).toEqual([...begun].sort());
  expect(begun).toHaveLength(7);
});

test('a long-running task does not count in the fair share, only in the limit of its key', async () => {
  const { activeApps, begun, ask, endNext } = schedulerOf({ concurrency: 4, concurrencyPerKey: 2, fairShare: 1 });
  activeApps.see('calm', 0);
  activeApps.see('flood', 0);
  const asked = [ask('flood', 'slow'), ask('flood', 'flood 1'), ask('flood', 'flood 2')];
  await settle();
  expect(begun).toEqual(['slow']);
  nowMs = 250;
  activeApps.see('calm', nowMs);
  activeApps.see('flood', nowMs);
  // Waiting tasks are rechecked by the real clock.
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(begun).toEqual(['slow', 'flood 1']);
  nowMs = 500;
  activeApps.see('calm', nowMs);
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(begun).toEqual(['slow', 'flood 1']);
  for (let left = 3; left > 0; left--) await endNext();
  expect(await Promise.all(asked)).toEqual(['slow', 'flood 1', 'flood 2']);
});

test('while other keys are active a slot cools down in proportion to its task, for its own key and up to a maximum', async () => {
  jest.useFakeTimers({ doNotFake: ['setImmediate'] });
  try {
    const limits = { concurrency: 2, concurrencyPerKey: 1, cooldownFactor: 3 };
    const { activeApps, begun, ask, endNext } = schedulerOf(limits);
    activeApps.see('calm', 0);
    activeApps.see('flood', 0);
    const asked = [ask('flood', 'flood 0'), ask('flood', 'flood 1'), ask('flood', 'flood 2'), ask('calm', 'calm 0')];
    asked.push(ask('calm', 'calm 1'));
    nowMs = 10;
    await endNext();
    expect(begun).toEqual(['flood 0', 'calm 0']);
    jest.advanceTimersByTime(29);
    await settle();
    expect(begun).toEqual(['flood 0', 'calm 0']);
    jest.advanceTimersByTime(1);
    await settle();
    expect(begun.slice(2)).toEqual(['flood 1']);
    await endNext();
    // Other keys do not wait for a cooldown.
    nowMs = 900;
    await endNext();
    jest.advanceTimersByTime(49);
    await settle();
    expect(begun.slice(3)).toEqual(['calm 1']);
    jest.advanceTimersByTime(1);
    await settle();
    expect(begun.slice(4)).toEqual(['flood 2']);
    // Without other active keys there is no cooldown.
    nowMs = 2_000;
    activeApps.see('flood', nowMs);
    asked.push(ask('flood', 'flood 3'));
    await endNext();
    await endNext();
    expect(begun.slice(5)).toEqual(['flood 3']);
    await endNext();
    expect((await Promise.all(asked)).sort()).toEqual([...begun].sort());
  } finally {
    jest.useRealTimers();
  }
});
