import { execFile } from 'node:child_process';
import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { chartToolsForTests } from '@granary/testing/stack';
import { parseAllDocuments, stringify } from 'yaml';

export const root = path.join(__dirname, '../../..');
export const chart = path.join(root, 'charts/granary');
export const release = 'granary';

const run = promisify(execFile);

/** A building time of the tools on an empty cache. */
export const buildTimeoutMs = 900_000;

export interface Container {
  image: string;
  name: string;
  command?: string[];
  env?: Array<{ name: string; value?: string; valueFrom?: unknown }>;
  securityContext: Record<string, unknown>;
  resources: { requests: Record<string, string>; limits: Record<string, string> };
  volumeMounts: Array<{ name: string; mountPath: string }>;
}

export interface PodSpec {
  containers: Container[];
  initContainers?: Container[];
  volumes: Array<{ name: string; [source: string]: unknown }>;
  securityContext: Record<string, unknown>;
  automountServiceAccountToken: boolean;
  terminationGracePeriodSeconds?: number;
  topologySpreadConstraints?: unknown[];
}

export interface Resource {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace?: string; labels: Record<string, string>; annotations?: Record<string, string> };
  spec: Record<string, unknown>;
  data?: Record<string, string>;
}

export interface Ran {
  code: number;
  output: string;
}

/** Runs one of the tools for charts to its end, whatever its exit code. */
export async function runChartTool(tool: string, args: string[], cwd = root): Promise<Ran> {
  const program = path.join(await chartToolsForTests(), tool);
  try {
    const { stdout, stderr } = await run(program, args, {
      cwd,
      maxBuffer: 64 * 1024 * 1024,
      env: { HOME: os.tmpdir() },
    });
    return { code: 0, output: stdout + stderr };
  } catch (error) {
    const { code, stdout = '', stderr = '' } = error as { code?: number | string; stdout?: string; stderr?: string };
    if (typeof code !== 'number') throw error;
    return { code, output: stdout + stderr };
  }
}

/** The values files for tests, which each install a whole Granary. */
export async function valuesFiles(): Promise<string[]> {
  return (await readdir(path.join(chart, 'ci'))).map((name) => path.join(chart, 'ci', name));
}

export const minimalValues = path.join(chart, 'ci/minimal-values.yaml');

/** What `helm template` prints, or the message of its failure. */
export async function template(values: readonly string[], args: readonly string[] = []): Promise<Ran> {
  const files = values.flatMap((file) => ['--values', file]);
  return runChartTool('helm', ['template', release, chart, '--namespace', 'apps', ...files, ...args]);
}

/** The resources of a rendering with these values over those of a file. */
export async function render(
  file: string,
  values: Record<string, unknown> = {},
  args: readonly string[] = [],
): Promise<Resource[]> {
  const { code, output } = await withValues(values, (extra) => template([file, extra], args));
  if (code !== 0) throw new Error(output);
  return parse(output);
}

export function parse(rendered: string): Resource[] {
  return parseAllDocuments(rendered)
    .map((document) => {
      if (document.errors.length > 0) throw document.errors[0]!;
      return document.toJS() as Resource | null;
    })
    .filter((resource) => resource !== null);
}

/** Calls `use` with a file of the values. */
export async function withValues<T>(values: Record<string, unknown>, use: (file: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'granary-values-'));
  try {
    const file = path.join(folder, 'values.yaml');
    await writeFile(file, stringify(values));
    return await use(file);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

export const ofKind = (resources: readonly Resource[], kind: string): Resource[] =>
  resources.filter((each) => each.kind === kind);

interface Workload {
  template?: { spec: PodSpec };
}

/** The pod that a resource makes; undefined for a resource that makes none. */
export function podOf({ kind, spec }: Resource): PodSpec | undefined {
  const inner = (job: Workload | undefined) => job?.template?.spec;
  if (kind === 'Pod') return spec as unknown as PodSpec;
  return inner(kind === 'CronJob' ? (spec['jobTemplate'] as { spec: Workload }).spec : spec);
}

export function containersOf(resource: Resource): Container[] {
  const pod = podOf(resource);
  return [...(pod?.containers ?? []), ...(pod?.initContainers ?? [])];
}

/** That PodSecurity `restricted` admits the pod, and that it has no token of its service account. */
export function expectRestricted(resource: Resource): void {
  const pod = podOf(resource)!;
  expect(pod.automountServiceAccountToken).toBe(false);
  expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } });
  for (const { name, securityContext } of containersOf(resource)) {
    expect({ name, securityContext }).toEqual({
      name,
      securityContext: {
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        runAsNonRoot: true,
        capabilities: { drop: ['ALL'] },
      },
    });
  }
  const sources = pod.volumes.flatMap((volume) => Object.keys(volume)).filter((key) => key !== 'name');
  const allowed = ['configMap', 'emptyDir', 'persistentVolumeClaim', 'projected'];
  expect(sources.filter((source) => !allowed.includes(source))).toEqual([]);
}

export const readText = (file: string): Promise<string> => readFile(path.join(root, file), 'utf8');
