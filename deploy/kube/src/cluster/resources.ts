import { waitUntil } from '../waiting';
import type { Cluster } from './cluster';

/** Kinds that Kubernetes makes for itself, and measures that are no resources. */
const ownKinds = /^(events|events\.events\.k8s\.io|leases\.coordination\.k8s\.io|.+\.metrics\.k8s\.io)$/;
/** The time that controllers may take to remove what belonged to resources that are gone. */
const goneWithinMs = 60_000;

/** The names of all resources of the namespace, of every kind that the API server has, as `<kind>/<name>`. */
export async function findResources(cluster: Cluster): Promise<string[]> {
  const listed = await cluster.run('kubectl', 'api-resources', '--verbs=list', '--namespaced', '--output=name');
  const kinds = linesOf(listed).filter((kind) => !ownKinds.test(kind));
  return linesOf(await cluster.kubectl('get', kinds.join(','), '--output=name'));
}

/**
 * Resolves once the namespace has the resources `before`, and no others. A new volume claim may be left; a resource
 * whose name `isTolerated` accepts may be left or gone.
 */
export async function expectResources(
  cluster: Cluster,
  before: readonly string[],
  isTolerated: (name: string) => boolean,
): Promise<void> {
  let differences: string[] = [];
  const isAsBefore = async (): Promise<boolean> => {
    const after = await findResources(cluster);
    const left = after.filter((name) => !before.includes(name) && !name.startsWith('persistentvolumeclaim/'));
    const gone = before.filter((name) => !after.includes(name));
    differences = Object.entries({ left, gone }).flatMap(([state, names]) =>
      names.filter((name) => !isTolerated(name)).map((name) => `${name} is ${state}`),
    );
    return differences.length === 0;
  };
  await waitUntil('the resources of before, and no others', isAsBefore, goneWithinMs).catch((error: Error) => {
    throw new Error(`${error.message}\n${differences.join('\n')}`, { cause: error });
  });
}

const linesOf = (text: string): string[] => text.split('\n').filter((line) => line !== '');
