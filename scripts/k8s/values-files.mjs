import { readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { scaledSeconds } from './eventually.mjs';

const namespace = 'rendered';

/**
 * Every values file of the chart, as the API server judges it: schemas, defaults, admission, and PodSecurity
 * `restricted`, for which a violating template is a warning and a violating pod an error. `definitions` is the folder
 * with the CRDs.
 */
export async function applyValuesFiles({ cluster, chart }, { definitions, directory }) {
  const kubectl = (...args) => cluster.run('kubectl', '--namespace', namespace, ...args);
  for (const name of definitionsIn(definitions))
    await kubectl('apply', '--server-side', '-f', path.join(definitions, name));
  await kubectl('wait', '--for=condition=Established', 'crd', '--all', `--timeout=${scaledSeconds(60)}`);
  await kubectl('create', 'namespace', namespace);
  const levels = ['enforce', 'warn'].map((mode) => `pod-security.kubernetes.io/${mode}=restricted`);
  await kubectl('label', 'namespace', namespace, ...levels);
  const files = readdirSync(path.join(chart, 'ci'));
  for (const name of files) {
    const values = path.join(chart, 'ci', name);
    const rendered = await cluster.run(
      cluster.helmFile,
      ...['template', 'granary', chart, '--namespace', namespace, '-f', values],
    );
    const [manifest, needed] = [name, `needed-${name}`].map((file) => path.join(directory, file));
    writeFileSync(manifest, rendered);
    writeFileSync(needed, neededByPods(rendered).join('\n---\n'));
    await kubectl('apply', '-f', needed);
    await kubectl('apply', '--dry-run=server', '--warnings-as-errors', '-f', manifest);
    await kubectl('delete', '-f', needed);
  }
  return `${files.length} files`;
}

/** What a pod is judged with, and has to exist therefore: its service account and classes, as texts. */
function neededByPods(rendered) {
  const accounts = rendered.split(/^---$/m).filter((text) => /^kind: ServiceAccount$/m.test(text));
  const classes = (kind, apiVersion, about) => {
    const member = `${kind[0].toLowerCase()}${kind.slice(1)}Name`;
    const names = new Set([...rendered.matchAll(new RegExp(`${member}:\\s+(\\S+)`, 'g'))].map(([, name]) => name));
    return [...names].map((name) => JSON.stringify({ apiVersion, kind, metadata: { name }, ...about }));
  };
  return [
    ...accounts,
    ...classes('PriorityClass', 'scheduling.k8s.io/v1', { value: 1 }),
    ...classes('RuntimeClass', 'node.k8s.io/v1', { handler: 'runc' }),
  ];
}

/** Removes what that has made in a cluster, which has the controllers that end a namespace. */
export async function removeDefinitions(cluster, definitions) {
  const files = definitionsIn(definitions).flatMap((name) => ['-f', path.join(definitions, name)]);
  await cluster.run('kubectl', 'delete', 'namespace', namespace);
  await cluster.run('kubectl', 'delete', ...files);
}

const definitionsIn = (folder) => readdirSync(folder).filter((name) => /^[a-z0-9.-]+_[a-z]+\.yaml$/.test(name));
