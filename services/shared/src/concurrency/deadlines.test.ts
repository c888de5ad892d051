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
