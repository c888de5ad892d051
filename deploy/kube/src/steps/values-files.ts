import { readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Cluster } from '../cluster/cluster';
import { scaledSeconds } from '../waiting';

const namespace = 'rendered';

/** The judge of the resources: a cluster, or an API server alone. */
type Judge = Pick<Cluster, 'run' | 'helmFile'>;

/**
 * Has the API server judge every values file of the chart: by schemas, defaults, admission, and PodSecurity
 * `restricted`, for which a violating template is a warning and a violating pod an error. `root` is the checkout, and
 * `definitions` the folder with the CRDs.
 */
export async function applyValuesFiles(
  { cluster, chart }: { cluster: Judge; chart: string },
  { root, definitions, directory }: { root: string; definitions: string; directory: string },
): Promise<string> {
  const kubectl = (...args: string[]): Promise<string> => cluster.run('kubectl', '--namespace', namespace, ...args);
  for (const name of definitionsIn(definitions))
    await kubectl('apply', '--server-side', '-f', path.join(definitions, name));
  await kubectl('wait', '--for=condition=Established', 'crd', '--all', `--timeout=${scaledSeconds(60)}`);
  await kubectl('create', 'namespace', namespace);
  const levels = ['enforce', 'warn'].map((mode) => `pod-security.kubernetes.io/${mode}=restricted`);
  await kubectl('label', 'namespace', namespace, ...levels);
  const folder = path.join(root, 'charts/granary/ci');
  const files = readdirSync(folder);
  for (const name of files) {
    const values = path.join(folder, name);
    const rendered = await cluster.run(
      cluster.helmFile,
      ...['template', 'granary', chart, '--namespace', namespace, '-f', values],
    );
    const manifest = path.join(directory, name);
    const needed = path.join(directory, `needed-${name}`);
    writeFileSync(manifest, rendered);
    writeFileSync(needed, neededByPods(rendered).join('\n---\n'));
    await kubectl('apply', '-f', needed);
    await kubectl('apply', '--dry-run=server', '--warnings-as-errors', '-f', manifest);
    await kubectl('delete', '-f', needed);
  }
  return `${files.length} files`;
}

/** The resources that must exist for pods to be judged, as texts: their service accounts and classes. */
function neededByPods(rendered: string): string[] {
  const accounts = rendered.split(/^---$/m).filter((text) => /^kind: ServiceAccount$/m.test(text));
  const classes = (kind: string, member: string, about: Record<string, unknown>): string[] => {
    const names = new Set([...rendered.matchAll(new RegExp(`${member}:\\s+(\\S+)`, 'g'))].map(([, name]) => name));
    return [...names].map((name) => JSON.stringify({ kind, metadata: { name }, ...about }));
  };
  return [
    ...accounts,
    ...classes('PriorityClass', 'priorityClassName', { apiVersion: 'scheduling.k8s.io/v1', value: 1 }),
    ...classes('RuntimeClass', 'runtimeClassName', { apiVersion: 'node.k8s.io/v1', handler: 'runc' }),
  ];
}

/** Removes what `applyValuesFiles` has made. This needs a cluster, whose controllers end the namespace. */
export async function removeDefinitions(cluster: Pick<Cluster, 'run'>, definitions: string): Promise<void> {
  const files = definitionsIn(definitions).flatMap((name) => ['-f', path.join(definitions, name)]);
  await cluster.run('kubectl', 'delete', 'namespace', namespace);
  await cluster.run('kubectl', 'delete', ...files);
}

const definitionsIn = (folder: string): string[] =>
  readdirSync(folder).filter((name) => /^[a-z0-9.-]+_[a-z]+\.yaml$/.test(name));
