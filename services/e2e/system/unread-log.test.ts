import { createInterface } from 'node:readline';
import { eventually } from '@granary/testing/eventually';
import { choosePorts } from '@granary/local/ports';
import { endAllProcesses, spawnBuilt } from '../support/own-process';

afterEach(endAllProcesses);

/** Starts a gateway in its own process, with its log in a pipe that is not read. */
async function startProcess() {
  const [port = 0, metricsPort = 0, unusedPort = 0] = await choosePorts(3);
  const unreachable = `127.0.0.1:${unusedPort}`;
  const child = await spawnBuilt(['gateway'], {
    ...process.env,
    PORT: String(port),
    METRICS_LISTEN: `127.0.0.1:${metricsPort}`,
    LOG_LEVEL: 'info',
    OPERATOR_KEY: 'the key of the operator',
    INTERNAL_SECRET: 'internal-secret-of-the-tests-0123456789',
    DATA_ADDRESS: unreachable,
    BLOBS_ADDRESS: unreachable,
    FINANCE_ADDRESS: unreachable,
    PAYMENTS_ADDRESS: unreachable,
    TASKS_ADDRESS: unreachable,
    BLOBS_HTTP_ADDRESS: unreachable,
  });
  const url = `http://127.0.0.1:${port}`;
  await eventually(() =>
    fetch(`${url}/livez`).then(
      ({ ok }) => ok,
      () => false,
    ),
  );
  const metric = async (name: string) => {
    const text = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();
    return Number(
      text
        .split('\n')
        .find((line) => line.startsWith(`${name} `))
        ?.slice(name.length),
    );
  };
  return { child, url, metric };
}

const requests = async (url: string, count: number) => {
  let left = count;
  const sendAll = async () => {
    while (left-- > 0) {
      const answer = await fetch(`${url}/livez`);
      expect(answer.status).toBe(200);
      await answer.arrayBuffer();
    }
  };
  await Promise.all(Array.from({ length: 32 }, sendAll));
};

test('a service does not block when its log is not read, and logs the number of dropped lines once it is', async () => {
  const { child, url, metric } = await startProcess();
  const residentBytes = () => metric('process_resident_memory_bytes');
  await requests(url, 2_000);
  const before = await residentBytes();
  // Until the pipe and the buffer are full, and lines are dropped.
  for (let round = 0; (await metric('granary_log_lines_dropped_total')) < 5_000; round++) {
    expect(round).toBeLessThan(60);
    await requests(url, 1_000);
  }
  expect((await residentBytes()) - before).toBeLessThan(100 * 1024 * 1024);
  const lost = await metric('granary_log_lines_dropped_total');

  const counts: number[] = [];
  const levels = new Set<number>();
  createInterface({ input: child.stdout! }).on('line', (text) => {
    const line = JSON.parse(text) as { level: number; msg: string; lines: number };
    levels.add(line.level);
    if (/dropped/.test(line.msg)) counts.push(line.lines);
  });
  await eventually(() => counts.length > 0);
  expect(counts).toEqual([lost]);
  // From now on no line is dropped.
  await requests(url, 100);
  expect(await metric('granary_log_lines_dropped_total')).toBe(lost);
  expect([...levels].sort()).toEqual([30, 40]);
});

test('a service whose log is not read exits on SIGTERM', async () => {
  const { child, url, metric } = await startProcess();
  while (!((await metric('granary_log_lines_dropped_total')) > 0)) await requests(url, 1_000);
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  expect(await ended).toBe(0);
});
