import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { limitMs } from '@granary/testing/speed';
import { choosePorts } from '@granary/local/ports';
import { endAllProcesses, OwnStart } from '../support/own-process';
import { rows } from '../support/settings-rows';

describe.each(['npm start', 'npm run stack'] as const)('%s', (way) => {
  let directory: string;
  let started: OwnStart;
  let metricsAddress: string;
  beforeAll(async () => {
    directory = await mkdtemp(path.join(os.tmpdir(), 'granary-settings-'));
    // With npm run stack each of the six processes has a port of its own, from this one on.
    metricsAddress = `localhost:${(await choosePorts(1))[0]}`;
    const settings = Object.fromEntries(Object.entries(rows).map(([name, { value }]) => [name, value]));
    started = await OwnStart.ready(way, directory, { ...settings, METRICS_LISTEN: metricsAddress });
  }, limitMs(180_000));
  afterAll(async () => {
    await started.end('SIGTERM');
    await endAllProcesses();
    await rm(directory, { recursive: true, force: true });
  }, limitMs(60_000));

  const visible = Object.entries(rows).filter(([, { effect }]) => effect !== undefined);
  test.each(visible)('%s has its effect', async (_, { effect }) => {
    await effect!({
      way,
      metricsAddress,
      url: started.url,
      app: started.app,
      output: () => started.output(),
    });
  });

  test('every log line names its service once', () => {
    const lines = started.output().split('\n');
    const logged = lines.flatMap((line) => /\{"level":.*\}$/.exec(line)?.[0] ?? []);
    expect(logged.length).toBeGreaterThan(0);
    for (const line of logged) expect(line.match(/"service":/g)).toHaveLength(1);
  });
});
