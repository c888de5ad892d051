import { execFile } from 'node:child_process';
import { chmod, copyFile, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { builtServices } from '@granary/testing/stack';
import { endAllProcesses, OwnStart } from '../support/own-process';

const root = path.join(__dirname, '../../..');
let base: string;
beforeAll(async () => {
  base = await mkdtemp(path.join(os.tmpdir(), 'granary-launch-'));
  await chmod(base, 0o755);
  await builtServices();
});
afterAll(async () => {
  await endAllProcesses();
  await rm(base, { recursive: true, force: true });
});

/** Runs a script of the checkout to its end. */
function run(script: string, args: string[], environment: Record<string, string> = {}) {
  const env = { PATH: process.env.PATH, HOME: process.env.HOME, ...environment };
  return new Promise<{ code: number; output: string }>((resolve) => {
    execFile(process.execPath, [path.join(root, 'scripts', script), ...args], { cwd: base, env }, (error, out, err) =>
      resolve({ code: error ? Number(error.code) : 0, output: out + err }),
    );
  });
}

test.each(['start.mjs', 'stack.mjs', 'demo.mjs'])('%s prints its options with -h and --help', async (script) => {
  for (const flag of ['-h', '--help']) {
    const { code, output } = await run(script, [flag]);
    expect(code).toBe(0);
    expect(output).toMatch(/^\s+--data-dir <path> /m);
    expect(output).toMatch(/^\s+-h, --help /m);
  }
});

test.each([
  ['start.mjs', ['--port', 'abc'], '--port must be a whole number from 0 to 65535, not "abc".'],
  ['start.mjs', ['--port', '70000'], '--port must be a whole number from 0 to 65535, not "70000".'],
  ['stack.mjs', ['--port='], '--port needs a value.'],
  [
    'start.mjs',
    ['--prot', '1'],
    'Unknown option --prot. The options are --port, --data-dir, --operator-key and --help.',
  ],
  ['stack.mjs', ['--docker=yes'], '--docker takes no value.'],
])('%s refuses %j in a sentence', async (script, args, sentence) => {
  expect(await run(script, args)).toEqual({ code: 1, output: `${sentence}\n` });
});

test.each(['npm start', 'npm run stack'] as const)(
  'npm run demo finds what %s runs, whatever its port and DEFAULT_READ, and says where it looked when nothing runs',
  async (way) => {
    const dataDir = path.join(base, way.replaceAll(' ', '-'));
    const started = await OwnStart.ready(way, dataDir, { DEFAULT_READ: way === 'npm start' ? 'private' : 'public' });
    const found = await run('demo.mjs', ['--data-dir', dataDir]);
    expect(found.output).toContain('All results were as expected.');
    expect(found.output).toContain(`${started.url}/store`);
    // A note that a kill leaves names a process that is gone.
    await started.end(way === 'npm start' ? 'SIGKILL' : 'SIGTERM');
    const sentence = `\nThe demo could not be run: No Granary runs on ${dataDir}. Start one with npm start, name its --data-dir, or give --url, --app and --key.\n`;
    expect(await run('demo.mjs', ['--data-dir', dataDir])).toEqual({ code: 1, output: sentence });
    // Ends the Postgres that the kill has left.
    await (await OwnStart.ready('npm start', dataDir)).end('SIGTERM');
  },
);

test('a start reads the file .env beside it, after the environment', async () => {
  const checkout = path.join(base, 'checkout');
  await mkdir(path.join(checkout, 'scripts'), { recursive: true });
  await copyFile(path.join(root, 'scripts/launch.mjs'), path.join(checkout, 'scripts/launch.mjs'));
  await writeFile(path.join(checkout, '.env'), 'MAX_BLOB_BYTES=7\nPORT=8\nDATA_DIR=data\n');
  const show = `import { readFlags } from ${JSON.stringify(path.join(checkout, 'scripts/launch.mjs'))};
    readFlags('start', ['--port', '9'], { '--port': 'PORT' }, '');
    console.log(process.env.MAX_BLOB_BYTES, process.env.PORT, process.env.CORS_ORIGINS, process.env.DATA_DIR);`;
  await writeFile(path.join(checkout, 'show.mjs'), show);
  const { output } = await run(path.relative(path.join(root, 'scripts'), path.join(checkout, 'show.mjs')), [], {
    CORS_ORIGINS: 'https://a.example',
  });
  expect(output).toBe(`7 9 https://a.example ${path.join(checkout, 'data')}\n`);
});

test('npm run stack lists every missing tool before it downloads anything', async () => {
  const tools = path.join(base, 'tools');
  const cache = path.join(base, 'cache');
  await Promise.all([mkdir(tools), mkdir(cache)]);
  for (const tool of ['id', 'sh']) await symlink(`/usr/bin/${tool}`, path.join(tools, tool));
  const environment = { PATH: tools, XDG_CACHE_HOME: cache, DATA_DIR: path.join(base, 'never-started'), PORT: '0' };
  const { code, output } = await run('stack.mjs', [], environment);
  expect(code).toBe(1);
  expect(output).toContain(
    'Kafka needs Java 17 or newer (JAVA_HOME, or the command java). Install it, or start with --bus postgres, which needs no Kafka.\n',
  );
  expect(output).toContain(
    'Go is missing: MinIO is built by Go 1.21 or newer (the command go). Install it, or start with --store files, which needs no MinIO.\n',
  );
  expect(output).not.toMatch(/Fetching|Building|\n\s+at /);
  expect((await readdir(path.join(cache, 'granary'))).filter((name) => name !== 'runs')).toEqual([]);
});
