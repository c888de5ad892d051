import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { limitMs } from '@granary/testing/speed';
import { identify, isAlive } from '@granary/local/processes/processes';

const root = path.join(__dirname, '../../..');
const startTimeoutMs = 120_000;

interface RunningStack {
  child: ChildProcess;
  url: string;
  key: string;
  /** Names of the processes, see `identify`, by the names of the parts. */
  parts: Map<string, string>;
  exit: Promise<number | null>;
  output(): string;
}

/** `npm run stack` as far as the calls that it suggests. */
async function startStack(dataDir: string, cache: string): Promise<RunningStack> {
  const options = ['--bus', 'postgres', '--store', 'files', '--port', '0', '--data-dir', dataDir];
  const env = { ...process.env, XDG_CACHE_HOME: cache, NODE_ENV: 'development' };
  const child = spawn(process.execPath, ['scripts/stack.mjs', ...options], { cwd: root, env, stdio: 'pipe' });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
  }
  // `close` comes after the last of the output, `exit` perhaps before it.
  const exit = new Promise<number | null>((resolve) => child.once('close', resolve));
  const deadline = performance.now() + limitMs(startTimeoutMs);
  while (!text.includes('Five calls')) {
    if (child.exitCode !== null || performance.now() > deadline) throw new Error(`The stack did not start:\n${text}`);
    await delay(50);
  }
  const found = (pattern: RegExp): string => pattern.exec(text)?.[1] ?? '';
  const parts = [...text.matchAll(/^ {2}(\w+) +port \d+, process (\d+)$/gm)];
  return {
    child,
    exit,
    output: () => text,
    url: found(/^Granary is ready at (\S+)$/m),
    key: found(/^ {2}demo app key: (\S+)$/m),
    parts: new Map(parts.map(([, name = '', pid]) => [name, identify(Number(pid)) ?? ''])),
  };
}

async function call({ url, key }: RunningStack, route: string, body: unknown): Promise<unknown> {
  const headers = { 'content-type': 'application/json', 'x-app-key': key };
  const response = await fetch(url + route, { method: 'POST', headers, body: JSON.stringify(body) });
  return response.json();
}

const living = ({ parts }: RunningStack): string[] =>
  [...parts].filter(([, identity]) => isAlive(identity)).map(([name]) => name);

const allParts = ['postgres', 'payments', 'data', 'blobs', 'finance', 'tasks', 'gateway'];

test(
  'npm run stack runs a process per service, restarts after a kill and stops completely',
  async () => {
    const [dataDir = '', cache = ''] = await Promise.all(
      ['data', 'cache'].map((name) => mkdtemp(path.join(os.tmpdir(), `granary-stack-${name}-`))),
    );
    const started: RunningStack[] = [];
    try {
      const killed = await startStack(dataDir, cache);
      started.push(killed);
      expect(living(killed)).toEqual(allParts);
      const stored = await call(killed, '/store', { root: 'demo::notes', data: [{ id: 'kept', text: 'Grüße' }] });
      expect(stored).toMatchObject({ status: 'Completed' });
      killed.child.kill('SIGKILL');
      await killed.exit;

      const next = await startStack(dataDir, cache);
      started.push(next);
      // Postgres is taken over; the services that were left are ended.
      expect(living(killed)).toEqual(['postgres']);
      expect(await call(next, '/list', { root: 'demo::notes' })).toMatchObject({
        records: [{ id: 'kept', text: 'Grüße' }],
      });
      next.child.kill('SIGINT');
      expect(await next.exit).toBe(0);
      expect(living(next)).toEqual([]);
      expect(next.output()).toContain('Everything has stopped.');

      const broken = await startStack(dataDir, cache);
      started.push(broken);
      process.kill(Number(broken.parts.get('data')?.split('-')[0]), 'SIGKILL');
      expect(await broken.exit).toBe(1);
      expect(living(broken)).toEqual([]);
      expect(broken.output()).toContain('data has ended (SIGKILL)');
    } finally {
      // Only what a failure above has left.
      for (const { child, parts } of started) {
        child.kill('SIGKILL');
        for (const identity of parts.values())
          if (isAlive(identity)) process.kill(Number(identity.split('-')[0]), 'SIGINT');
      }
      for (const folder of [dataDir, cache]) await rm(folder, { recursive: true, force: true, maxRetries: 10 });
    }
  },
  limitMs(300_000),
);
