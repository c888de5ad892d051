import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { eventually } from '@granary/testing/eventually';
import { describeWith } from '@granary/testing/stack';
import { buildTimeoutMs, runChartTool } from '../chart/chart';
import { endAllProcesses, track } from '../support/own-process';

const run = promisify(execFile);
const checkout = path.join(__dirname, '../../..');

let directory: string;
/** The folder of a release that `npm run release` has written. */
let release: string;
let version: string;

const inRelease = (file: string): string => path.join(release, file);
const readRelease = (file: string): Promise<string> => readFile(inRelease(file), 'utf8');

interface Ran {
  code: number;
  output: string;
}

/** Runs a program in the checkout to its end, whatever its exit code. */
async function runToEnd(program: string, args: string[], env: NodeJS.ProcessEnv = {}): Promise<Ran> {
  try {
    const options = { cwd: checkout, env: { ...process.env, TMPDIR: directory, ...env }, maxBuffer: 64e6 };
    const { stdout, stderr } = await run(program, args, options);
    return { code: 0, output: stdout + stderr };
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
    return { code, output: stdout + stderr };
  }
}

const writeRelease = (args: string[], env?: NodeJS.ProcessEnv): Promise<Ran> =>
  runToEnd(process.execPath, ['scripts/release.mjs', ...args], env);

/** Runs a module that imports from the scripts of the checkout. */
const evaluate = (program: string): Promise<Ran> =>
  runToEnd(process.execPath, ['--input-type=module', '--eval', program]);

/** Packs a chart; `image` is JavaScript. */
const packChart = (chart: string, file: string, image = 'undefined'): Promise<Ran> =>
  evaluate(`import { packChart } from './scripts/release/chart-archive.mjs';
    await packChart(${JSON.stringify(chart)}, ${JSON.stringify(file)}, ${image});`);

/** A new folder, and the folders in it that a release uses. */
async function makeFolders(): Promise<{ target: string; temporary: string }> {
  const folder = await mkdtemp(path.join(directory, 'run-'));
  const folders = { target: path.join(folder, 'target'), temporary: path.join(folder, 'temporary') };
  for (const each of Object.values(folders)) await mkdir(each);
  return folders;
}

async function filesIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name))).sort();
}

beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'granary-release-test-'));
  release = path.join(directory, 'release');
  ({ version } = JSON.parse(await readFile(path.join(checkout, 'package.json'), 'utf8')) as { version: string });
  expect(await writeRelease(['--output', release])).toMatchObject({ code: 0 });
});
afterAll(async () => {
  await endAllProcesses();
  await rm(directory, { recursive: true, force: true });
});

test('it has what an installation needs, each file with its checksum, which sha256sum accepts', async () => {
  const files = await filesIn(release);
  expect(files.filter((file) => !file.startsWith('docs/'))).toEqual([
    'CHANGELOG.md',
    'INSTALL.md',
    'LICENSE',
    'SHA256SUMS',
    `charts/granary-${version}.tgz`,
    `charts/granary-infra-${version}.tgz`,
    `image/granary-${version}.spdx.json`,
    `image/granary-${version}.tar`,
    `npm/granary-${version}.spdx.json`,
    `npm/granary-${version}.tgz`,
    `npm/granary-client-${version}.spdx.json`,
    `npm/granary-client-${version}.tgz`,
    'postgres.sql',
    'values/infra-values.yaml',
    'values/ingress-values.yaml',
    'values/minimal-values.yaml',
    'values/production-values.yaml',
  ]);
  const { stdout } = await run('sha256sum', ['--strict', '-c', 'SHA256SUMS'], { cwd: release });
  const checked = stdout.trim().split('\n');
  expect(checked).toEqual(files.filter((file) => file !== 'SHA256SUMS').map((file) => `${file}: OK`));
});

test('its guide names only what is there', async () => {
  const guide = await readRelease('INSTALL.md');
  const names = guide.match(/\b(image|charts|npm|values|docs)\/[\w./-]*\w|\b\w+\.(sql|md)\b/g) ?? [];
  expect(names.length).toBeGreaterThan(20);
  expect(names.filter((name) => !existsSync(inRelease(name)) && name !== 'UPGRADING.md')).toEqual([]);
  expect(guide).not.toMatch(/\{\{|\.\.\//);
});

test('the same checkout gives the same bytes, whatever the mask of its files', async () => {
  const again = path.join(directory, 'again');
  const script = `umask 077; exec ${process.execPath} scripts/release.mjs --output ${again}`;
  expect(await runToEnd('sh', ['-c', script])).toMatchObject({ code: 0 });
  expect(await readFile(path.join(again, 'SHA256SUMS'), 'utf8')).toBe(await readRelease('SHA256SUMS'));
});

test('its image is the one that npm run image makes, under the name that the chart pulls, and has the list beside it', async () => {
  const layout = path.join(directory, 'layout');
  await mkdir(layout);
  await run('tar', ['-xf', inRelease(`image/granary-${version}.tar`), '-C', layout]);
  const read = async <T>(file: string): Promise<T> => JSON.parse(await readFile(path.join(layout, file), 'utf8')) as T;
  const { manifests } = await read<{ manifests: [{ digest: string }] }>('index.json');
  const [{ digest }] = manifests;
  const built = await runToEnd(process.execPath, ['scripts/image.mjs', '--output', path.join(directory, 'image.tar')]);
  expect(built.output).toContain(digest);
  expect(await readRelease('INSTALL.md')).toContain(digest);

  const [{ RepoTags, Layers }] = await read<[{ RepoTags: string[]; Layers: string[] }]>('manifest.json');
  expect(RepoTags).toEqual([`registry.local/granary/granary:${version}`]);
  const application = path.join(layout, Layers.at(-1)!);
  const { stdout: list } = await run('tar', ['-xOf', application, './app/sbom.spdx.json'], { maxBuffer: 64e6 });
  expect(await readRelease(`image/granary-${version}.spdx.json`)).toBe(list);
});

test('its npm packages are installed without a registry, and their lists name what is in them', async () => {
  const folder = path.join(directory, 'npm');
  await mkdir(folder);
  await writeFile(path.join(folder, 'package.json'), '{"private":true}');
  const archives = ['granary', 'granary-client'].map((name) => inRelease(`npm/${name}-${version}.tgz`));
  await run('npm', ['install', '--offline', '--no-audit', '--no-fund', ...archives], { cwd: folder });
  const shown = await run(path.join(folder, 'node_modules/.bin/granary'), ['--version'], { cwd: folder });
  expect(shown.stdout).toBe(`${version}\n`);
  const program = `import { granary } from '@granary/client'; console.log(typeof granary);`;
  const imported = await run(process.execPath, ['--input-type=module', '--eval', program], { cwd: folder });
  expect(imported.stdout).toBe('function\n');

  const listed = async (name: string): Promise<string[]> => {
    const text = await readRelease(`npm/${name}-${version}.spdx.json`);
    const { packages } = JSON.parse(text) as { packages: Array<{ name: string; versionInfo: string }> };
    return packages.map((each) => `${each.name} ${each.versionInfo}`);
  };
  const commander = path.join(folder, 'node_modules/granary/node_modules/commander/package.json');
  const { version: bundled } = JSON.parse(await readFile(commander, 'utf8')) as { version: string };
  expect(await listed('granary')).toEqual([`granary ${version}`, `@granary/client ${version}`, `commander ${bundled}`]);
  expect(await listed('granary-client')).toEqual([`@granary/client ${version}`]);
});

describeWith(describe, 'helm')('the archives of its charts', () => {
  const helm = async (...args: string[]): Promise<string> => {
    const { code, output } = await runChartTool('helm', args);
    if (code !== 0) throw new Error(output);
    return output;
  };
  const values = (name: string): string[] => ['--values', inRelease(`values/${name}-values.yaml`)];

  test(
    'have the files that helm package takes, and Helm renders them as it does the folders',
    async () => {
      for (const [name, ...flags] of [
        ['granary', ...values('minimal')],
        ['granary', ...values('production')],
        ['granary', ...values('ingress')],
        ['granary', ...values('infra')],
        ['granary-infra', '--set', 'passwordSeed=0123456789abcdef0123456789abcdef'],
      ] as const) {
        const archive = inRelease(`charts/${name}-${version}.tgz`);
        await helm('lint', archive, ...flags);
        expect(await helm('show', 'chart', archive)).toContain(`\nversion: ${version}\n`);
        const rendered = await helm('template', 'granary', archive, ...flags);
        expect(rendered).toBe(await helm('template', 'granary', path.join(checkout, 'charts', name), ...flags));
      }
      for (const name of ['granary', 'granary-infra']) {
        await helm('package', path.join(checkout, 'charts', name), '--destination', directory);
        const list = async (archive: string): Promise<string[]> => {
          const { stdout } = await run('tar', ['-tzf', archive]);
          return stdout
            .split('\n')
            .filter((file) => file !== '' && !file.endsWith('/'))
            .sort();
        };
        const file = `${name}-${version}.tgz`;
        expect(await list(inRelease(`charts/${file}`))).toEqual(await list(path.join(directory, file)));
      }
    },
    buildTimeoutMs,
  );

  test('pull the image of the release from the place that it was made for', async () => {
    const archive = path.join(directory, 'chart.tgz');
    const image = `{ registry: 'registry.example.com:5000', repository: 'data/granary' }`;
    expect(await packChart('charts/granary', archive, image)).toEqual({ code: 0, output: '' });
    const rendered = await helm('template', 'granary', archive, ...values('minimal'));
    const images = new Set(rendered.match(/(?<=image: )\S+/g));
    expect([...images]).toEqual([`registry.example.com:5000/data/granary:${version}`]);
    expect(
      await helm('template', 'granary', inRelease(`charts/granary-${version}.tgz`), ...values('minimal')),
    ).toContain(`image: registry.local/granary/granary:${version}\n`);
  });
});

test('a release that fails, or is interrupted, leaves nothing', async () => {
  const { target, temporary } = await makeFolders();
  const output = path.join(target, 'granary');
  const programs = await mkdtemp(path.join(directory, 'programs-'));
  await writeFile(path.join(programs, 'ldd'), '#!/bin/sh\necho no libraries; exit 1\n', { mode: 0o755 });
  const env = { PATH: `${programs}:${process.env['PATH']}`, TMPDIR: temporary };
  expect(await writeRelease(['--output', output], env)).toEqual({
    code: 1,
    output: expect.stringMatching(/^ldd \S+ failed: no libraries\n\n$/) as string,
  });
  expect([await readdir(target), await readdir(temporary)]).toEqual([[], []]);

  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    const options = { cwd: checkout, env: { ...process.env, TMPDIR: temporary } };
    const child = track(spawn(process.execPath, ['scripts/release.mjs', '--output', output], options));
    const ended = new Promise((resolve) => child.once('close', (_, reason) => resolve(reason)));
    // npm installs the packages of the image there.
    await eventually(async () => (await readdir(temporary, { recursive: true })).some((file) => file.endsWith('/app')));
    expect(await readdir(target)).toEqual([expect.stringMatching(/^\.granary-release-\w+$/)]);
    child.kill(signal);
    expect(await ended).toBe(signal);
    expect([await readdir(target), await readdir(temporary)]).toEqual([[], []]);
  }
});

test('a folder that exists, one that cannot be made, and names that are none are refused by a sentence', async () => {
  const { target } = await makeFolders();
  const refusal = async (...args: string[]): Promise<string> => {
    const { code, output } = await writeRelease(args);
    expect(code).toBe(1);
    return output;
  };
  const missing = path.join(target, 'missing');
  expect(await refusal('--output', target)).toBe(
    `${target} is there already: remove it, or name another folder by --output.\n`,
  );
  expect(await refusal('--output', path.join(missing, 'granary'))).toBe(
    `${missing}, in which the release would be written, does not exist.\n`,
  );
  expect(await refusal('--output', '')).toBe('--output needs a value.\n');
  for (const image of [
    '',
    'granary',
    'granary/granary',
    'registry.example.com/',
    'registry.example.com/granary:1',
    'a.b/C',
  ])
    expect(await refusal('--output', path.join(target, 'granary'), '--image', image)).toMatch(
      new RegExp(`^--image must be a registry and a repository in lower case, .*, not "${image}"\\.`),
    );
  expect(await readdir(target)).toEqual([]);
});

test('a chart of another version, and a pattern of .helmignore that Helm alone can read, are refused', async () => {
  const { target } = await makeFolders();
  for (const name of ['granary', 'granary-infra']) {
    await mkdir(path.join(target, 'charts', name), { recursive: true });
    const chart = name === 'granary' ? 'version: 1.0.0\nappVersion: 1.0.0\n' : 'version: 1.0.0\nappVersion: 0.9.0\n';
    await writeFile(path.join(target, 'charts', name, 'Chart.yaml'), chart);
  }
  for (const folder of ['', 'services/cli', 'services/client']) {
    await mkdir(path.join(target, folder), { recursive: true });
    await writeFile(path.join(target, folder, 'package.json'), '{"version":"1.0.0"}');
  }
  const text = JSON.stringify(target);
  const written = await evaluate(`import { writeRelease } from './scripts/release.mjs';
    await writeRelease(${text}, { output: ${text} + '/granary' }).catch(({ message }) => console.log(message));`);
  expect(written.output).toBe('charts/granary-infra/Chart.yaml has the appVersion 0.9.0, and package.json 1.0.0.\n');
  await writeFile(path.join(target, 'charts/granary/.helmignore'), '# a comment\nci/\n*.swp\n');
  const packed = await packChart(path.join(target, 'charts/granary'), path.join(target, 'chart.tgz'));
  expect(packed.output).toContain('.helmignore: "*.swp" is not the name of a file, a folder/ or a /file at the top.');
  expect(await readdir(target)).toEqual(['charts', 'package.json', 'services']);
});
