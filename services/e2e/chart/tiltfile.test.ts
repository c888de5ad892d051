import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { describeWith, chartToolsForTests } from '@granary/testing/stack';
import { serviceNames } from '@granary/shared/trust/services';
import { buildTimeoutMs, chart, containersOf, ofKind, parse, podOf, readText, root, runChartTool } from './chart';

type Call = [name: string, args: Record<string, unknown>];

interface Projected {
  sources: Array<{ secret: { name: string } }>;
}

interface Build {
  ref: string;
  live_update: Array<{ local_path: string; remote_path: string }>;
}

const devValues = path.join(root, 'deploy/tilt/values.yaml');

describeWith(describe, 'helm')('the Tiltfile', () => {
  let helm: string;
  beforeAll(async () => {
    helm = path.join(await chartToolsForTests(), 'helm');
  }, buildTimeoutMs);

  const runTiltfile = (file: string, ...flags: string[]) => runChartTool('tilt-check', [helm, file, ...flags]);
  const callsOf = async (...flags: string[]): Promise<Call[]> => {
    const { code, output } = await runTiltfile('Tiltfile', ...flags);
    if (code !== 0) throw new Error(output);
    return JSON.parse(output) as Call[];
  };
  const named = <T>(calls: Call[], name: string): T[] =>
    calls.flatMap(([each, args]) => (each === name ? [args as T] : []));
  const rendered = async () =>
    parse((await runChartTool('helm', ['template', 'granary', chart, '--values', devValues])).output);

  /** The Tiltfile with one thing changed. */
  const withChange = async (from: string, to: string) => {
    const folder = await mkdtemp(path.join(os.tmpdir(), 'granary-tilt-'));
    try {
      const text = await readText('Tiltfile');
      expect(text).toContain(from);
      await writeFile(path.join(folder, 'Tiltfile'), text.replace(from, to));
      return await runTiltfile(path.join(folder, 'Tiltfile'));
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  };

  test('has fewer than 120 lines', async () => {
    expect((await readText('Tiltfile')).split('\n').length).toBeLessThan(120);
  });

  test('every file and folder that it names exists', async () => {
    const calls = await callsOf();
    const [image] = named<{ context: string; dockerfile: string; only: string[] }>(calls, 'docker_build');
    const paths = [
      image!.context,
      image!.dockerfile,
      ...image!.only,
      ...named<{ deps?: string[] }>(calls, 'local_resource').flatMap(({ deps = [] }) => deps),
      ...named<{ file_path: string }>(calls, 'read_file').map(({ file_path }) => file_path),
      ...named<{ file_path: string }>(calls, 'watch_file').map(({ file_path }) => file_path),
      ...named<{ values: string[] }>(calls, 'helm').flatMap(({ values }) => values),
      'deploy/tilt/backends.yaml',
    ];
    expect(paths.length).toBeGreaterThan(15);
    expect(paths.filter((each) => !existsSync(path.join(root, each)))).toEqual([]);
  });

  test.each([
    ['docker_build', []],
    ['docker_build', ['--registry=localhost:5000']],
    ['custom_build', ['--load=ctr images import -']],
  ])('%s %j makes the image of every pod, and copies every package to where it runs', async (how, flags) => {
    const calls = await callsOf(...flags);
    const [{ ref, live_update: updates }] = named<Build>(calls, how) as [Build];
    const pods = (await rendered()).filter((each) => podOf(each) !== undefined);
    expect(pods).toHaveLength(serviceNames.length + 1);
    for (const { image, command } of pods.flatMap(containersOf)) {
      expect(image.replace(/:[^:/]*$/, '')).toBe(ref);
      if (command === undefined) continue;
      expect(command.slice(0, 2)).toEqual(['node', '--watch']);
      expect(updates.some(({ remote_path }) => command[2]!.startsWith(`${remote_path}/`))).toBe(true);
    }
    expect(updates.map(({ local_path }) => local_path).sort()).toEqual(
      [...serviceNames, 'shared', 'operator'].map((name) => `services/${name}/dist`).sort(),
    );
    for (const { local_path, remote_path } of updates) expect(remote_path).toBe(`/app/${local_path}`);
    expect(await readText('deploy/tilt/Dockerfile')).toContain('WORKDIR /app\n');
    expect(named(calls, 'default_registry')).toHaveLength(flags[0]?.startsWith('--registry') ? 1 : 0);
  });

  test('every resource that it configures is a workload, and waits for resources that exist', async () => {
    const calls = await callsOf();
    const backends = parse(await readFile(path.join(root, 'deploy/tilt/backends.yaml'), 'utf8'));
    const workloads = [...(await rendered()), ...backends]
      .filter((each) => podOf(each) !== undefined)
      .map(({ metadata }) => metadata.name);
    const configured = named<{ workload: string; resource_deps?: string[] }>(calls, 'k8s_resource');
    expect(configured.map(({ workload }) => workload).sort()).toEqual(workloads.sort());
    const local = named<{ name: string }>(calls, 'local_resource').map(({ name }) => name);
    const waited = configured.flatMap(({ resource_deps: names = [] }) => names);
    expect(waited.filter((name) => ![...workloads, ...local].includes(name))).toEqual([]);
    expect(waited).toContain('compile');
  });

  test('the services get the Secrets of the backends, and find them', async () => {
    const backends = parse(await readFile(path.join(root, 'deploy/tilt/backends.yaml'), 'utf8'));
    const resources = await rendered();
    const volumes = resources.flatMap((each) => podOf(each)?.volumes ?? []);
    const sources = volumes.flatMap(({ projected }) => (projected as Projected | undefined)?.sources ?? []);
    const secrets = sources.map(({ secret }) => secret.name);
    const made = ofKind(backends, 'Secret').map(({ metadata }) => metadata.name);
    expect([...new Set(secrets)].sort()).toEqual(made.sort());
    expect(ofKind(backends, 'Service').map(({ metadata }) => metadata.name)).toEqual(['postgres', 'minio']);
    expect(JSON.stringify(resources)).toContain('@postgres:5432/');
    const calls = await callsOf();
    const [sql] = named<{ object: { metadata: { name: string }; data: Record<string, string> } }>(calls, 'encode_yaml');
    expect(sql!.object.data['postgres.sql']).toBe(await readText('deploy/postgres.sql'));
    expect(JSON.stringify(podOf(ofKind(backends, 'Deployment')[0]!)!.volumes)).toContain(sql!.object.metadata.name);
  });

  test('backends may run elsewhere', async () => {
    const calls = await callsOf('--backends=false');
    const names = named<{ workload: string }>(calls, 'k8s_resource').map(({ workload }) => workload);
    expect(names.filter((name) => !name.startsWith('granary-'))).toEqual([]);
  });

  test.each([
    ['a misspelt builtin', 'docker_build(image', 'docker_biuld(image', /Tiltfile:\d+:\d+: undefined: docker_biuld/],
    ['an unknown argument', 'only=contents', 'onlly=contents', /docker_build: unexpected keyword argument "onlly"/],
    [
      'a chart that is not there',
      "helm('charts/granary'",
      "helm('charts/granery'",
      /Tiltfile:\d+:\d+[^]+helm: Error: repo charts not found/,
    ],
    [
      'a file that is not there',
      "read_file('deploy/postgres.sql')",
      "read_file('deploy/x.sql')",
      /open deploy\/x\.sql/,
    ],
  ])('the check refuses %s', async (_, from, to, message) => {
    const { code, output } = await withChange(from, to);
    expect(code).toBe(1);
    expect(output).toMatch(message);
  });

  test('an unknown flag is refused', async () => {
    expect(await runTiltfile('Tiltfile', '--regestry=x')).toMatchObject({
      code: 1,
      output: expect.stringContaining('unknown flag: --regestry') as string,
    });
  });
});
