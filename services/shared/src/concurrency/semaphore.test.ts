import { Semaphore } from './semaphore';

test('as many tasks as the limit run at once, and the others follow in the order in which they came', async () => {
  const semaphore = new Semaphore(2);
  const started: number[] = [];
  const start = async (task: number) => {
    await semaphore.acquire();
    started.push(task);
  };
  const tasks = [1, 2, 3, 4].map(start);
  await Promise.all(tasks.slice(0, 2));
  expect([started, semaphore.counts()]).toEqual([[1, 2], { held: 2, waiting: 2, limit: 2 }]);
  semaphore.release();
  await tasks[2];
  semaphore.release();
  await tasks[3];
  expect(started).toEqual([1, 2, 3, 4]);
  semaphore.release();
  semaphore.release();
  expect(semaphore.counts()).toEqual({ held: 0, waiting: 0, limit: 2 });
});

test('a bounded queue refuses a task that finds it full, or waits too long', async () => {
  const refused = new Error('refused');
  const semaphore = new Semaphore(1, { max: 1, timeoutMs: 20, refusal: () => refused });
  expect([semaphore.tryAcquire(), semaphore.tryAcquire()]).toEqual([true, false]);
  const late = semaphore.acquire();
  await expect(semaphore.acquire()).rejects.toBe(refused);
  await expect(late).rejects.toBe(refused);
  const next = semaphore.acquire();
  semaphore.release();
  await next;
  semaphore.release();
  expect(semaphore.counts()).toEqual({ held: 0, waiting: 0, limit: 1 });
});
