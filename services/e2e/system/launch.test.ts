import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { chmod, copyFile, cp, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo, type Server } from 'node:net';
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

describe('an address that cannot be taken is refused in a sentence, before anything is installed, built or created', () => {
  let bare: string;
  let taken: Server;
  beforeAll(async () => {
    bare = path.join(base, 'bare');
    for (const file of ['scripts', 'services/shared/src/listen-problems.json', 'package.json', 'package-lock.json']) {
      await cp(path.join(root, file), path.join(bare, file), { recursive: true });
    }
    taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
  });
  afterAll(() => new Promise((resolve) => taken.close(resolve)));

  async function expectRefusal(
    settings: Record<string, string>,
    sentence: string,
    user: { uid?: number; gid?: number } = {},
  ) {
    const env = { PATH: process.env.PATH, ...settings };
    const script = path.join(bare, 'scripts/start.mjs');
    const ended = await new Promise((resolve) => {
      execFile(process.execPath, [script], { cwd: bare, env, ...user }, (error, out, err) =>
        resolve({ code: error?.code, output: out + err }),
      );
    });
    expect(ended).toEqual({ code: 1, output: `${sentence}\n` });
    expect((await readdir(bare)).sort()).toEqual(['package-lock.json', 'package.json', 'scripts', 'services']);
  }

  test('a port that another program has', async () => {
    const { port } = taken.address() as AddressInfo;
    const why =
      'the port is taken. Stop the program that has it, or choose another port with --port (PORT; 0 for any free one).';
    await expectRefusal({ PORT: String(port) }, `Cannot listen on 127.0.0.1:${port}: ${why}`);
  });

  // Where Linux lets every user listen on every port, none is refused for that.
  const firstFree = Number(readFileSync('/proc/sys/net/ipv4/ip_unprivileged_port_start', 'utf8'));
  const nobody = 65_534;
  (firstFree > 80 ? test : test.skip)('a port for which this user has no right', async () => {
    const why = 'ports below 1024 need root or CAP_NET_BIND_SERVICE. Choose a port from 1024 up, behind a proxy.';
    const user = process.getuid?.() === 0 ? { uid: nobody, gid: nobody } : {};
    await expectRefusal({ PORT: '80' }, `Cannot listen on 127.0.0.1:80: ${why}`, user);
  });

  test('an address of another machine', async () => {
    const why = 'this machine has no such address. Use one of its own, or 0.0.0.0 for all of them.';
    await expectRefusal({ HOST: '192.0.2.1' }, `Cannot listen on 192.0.2.1:8080: ${why}`);
    await expectRefusal({ HOST: '2001:db8::1', PORT: '1' }, `Cannot listen on [2001:db8::1]:1: ${why}`);
  });
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
