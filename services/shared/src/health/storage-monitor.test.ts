import { createLogger } from '../logger';
import { storageFull, StorageMonitor } from './storage-monitor';

test('writes that fail while a probe runs, which finds room, do not keep a later lack of room from being found', async () => {
  let found = () => {};
  let probes = 0;
  const probe = () => {
    probes += 1;
    if (probes > 1) return Promise.reject(storageFull('database'));
    return new Promise<void>((resolve) => (found = resolve));
  };
  const log = createLogger('test', 'silent');
  const monitor = new StorageMonitor({ service: 'test', volume: 'database', log, probe, reserveBytes: 0 });
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  storageFull('database');
  await turn();
  storageFull('database');
  found();
  await turn();
  expect([probes, monitor.isFull]).toEqual([1, false]);
  storageFull('database');
  await turn();
  expect([probes, monitor.isFull]).toEqual([2, true]);
  await monitor.stop();
});
