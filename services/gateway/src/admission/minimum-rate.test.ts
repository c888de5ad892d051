import { MinimumRateMonitor, type MonitoredTransfer } from './minimum-rate';

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

function monitorOf() {
  const slow: string[] = [];
  const monitor = new MinimumRateMonitor({ graceMs: 2_000, bytesPerSecond: 100, windowMs: 1_000 });
  return { monitor, slow, start: (name: string) => monitor.start(() => slow.push(name)) };
}

/** Lets time pass while each transfer moves so many bytes every quarter of a second. */
function pass(ms: number, rates: ReadonlyArray<[MonitoredTransfer, number]> = []): void {
  for (let elapsedMs = 0; elapsedMs < ms; elapsedMs += 250) {
    for (const [transfer, bytes] of rates) transfer.add(bytes);
    jest.advanceTimersByTime(250);
  }
}

test('a transfer that is too slow after the grace period ends once, a fast one never does', () => {
  const { monitor, slow, start } = monitorOf();
  start('silent');
  const fast = start('fast');
  pass(1_750, [[fast, 25]]);
  expect(slow).toEqual([]);
  pass(250, [[fast, 25]]);
  expect(slow).toEqual(['silent']);
  pass(10_000, [[fast, 25]]);
  expect(slow).toEqual(['silent']);
  expect(monitor.size).toBe(1);
});

test('each window is judged by itself: what was fast before may not be silent afterwards', () => {
  const { slow, start } = monitorOf();
  const transfer = start('fast at first');
  pass(2_000, [[transfer, 10_000]]);
  pass(1_000);
  expect(slow).toEqual(['fast at first']);
});

test('bytes may come unevenly within a window', () => {
  const { slow, start } = monitorOf();
  const transfer = start('uneven');
  pass(1_750);
  transfer.add(200);
  pass(250);
  for (let window = 0; window < 5; window += 1) {
    pass(750);
    transfer.add(100);
    pass(250);
  }
  expect(slow).toEqual([]);
});

test('time in which a transfer is paused does not count', () => {
  const { slow, start } = monitorOf();
  const transfer = start('paused');
  pass(1_750);
  transfer.pause();
  pass(60_000);
  transfer.resume();
  expect(slow).toEqual([]);
  pass(250);
  expect(slow).toEqual(['paused']);
});

test('a transfer that was stopped is never too slow, and without transfers there is no timer', () => {
  const { monitor, slow, start } = monitorOf();
  start('stopped').stop();
  pass(250);
  expect(jest.getTimerCount()).toBe(0);
  const again = start('again');
  pass(2_000);
  again.stop();
  pass(250);
  expect(slow).toEqual(['again']);
  expect([monitor.size, jest.getTimerCount()]).toEqual([0, 0]);
});

test('a callback may stop other transfers and start new ones', () => {
  const { monitor, slow, start } = monitorOf();
  monitor.start(() => {
    slow.push('first');
    second.stop();
    start('new');
  });
  const second = start('second');
  pass(2_000);
  expect(slow).toEqual(['first']);
  pass(2_250);
  expect(slow).toEqual(['first', 'new']);
});
