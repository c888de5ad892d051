import { startDeadline, cancelDeadline } from './deadlines';

const elapsed = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

test('what waits too long expires once, in the order of the deadlines, and what was stopped never does', async () => {
  const expired: string[] = [];
  const begin = (name: string, timeoutMs: number) => startDeadline(timeoutMs, () => expired.push(name));
  begin('far away', 60_000);
  begin('third', 120);
  begin('first', 0);
  const stopped = begin('stopped', 20);
  // Earlier than everything that is waited for: the sweep must not sleep through it.
  begin('second', 40);
  cancelDeadline(stopped);
  const last = new Promise<void>((resolve) => startDeadline(200, resolve));
  await last;
  await elapsed(30);
  expect(expired).toEqual(['first', 'second', 'third']);
});

test('what a late sweep finds expires in the order of the deadlines, not in that of their beginning', async () => {
  const expired: string[] = [];
  const last = new Promise<void>((resolve) => startDeadline(30, resolve));
  for (const timeoutMs of [29, 2, 28, 1, 3]) startDeadline(timeoutMs, () => expired.push(`${timeoutMs} ms`));
  // As the process is held up on a busy machine: no timer fires meanwhile.
  const beganMs = performance.now();
  while (performance.now() - beganMs < 40);
  await last;
  expect(expired).toEqual(['1 ms', '2 ms', '3 ms', '28 ms', '29 ms']);
});

test('what expires may stop others that are due with it, and begin to wait again', async () => {
  const expired: string[] = [];
  await new Promise<void>((resolve) => {
    startDeadline(0, () => {
      expired.push('first');
      cancelDeadline(second);
      startDeadline(0, () => {
        expired.push('again');
        resolve();
      });
    });
    const second = startDeadline(0, () => expired.push('second'));
  });
  expect(expired).toEqual(['first', 'again']);
});
