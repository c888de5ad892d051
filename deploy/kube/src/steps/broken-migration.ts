import type { Cluster } from '../cluster/cluster';
import type { Job, List } from '../cluster/kubernetes';
import type { Proof } from '../proof/proof';

/** Proves that an upgrade whose migration fails also fails, changes no pod, and leaves the log of the migration. */
export async function failMigration(proof: Proof): Promise<void> {
  const { backends, cluster } = proof;
  const pods = (): Promise<string> =>
    cluster.kubectl('get', 'pods', '-l', 'app.kubernetes.io/component=tasks', '-o', 'name');
  const before = await pods();
  await backends.primary.sql('alter role granary_tasks_owner nologin');
  try {
    await proof.upgrade('--set', 'migrations.backoffLimit=0');
  } catch (error) {
    if (!/pre-upgrade hooks failed/.test((error as Error).message)) throw error;
    if ((await pods()) !== before) throw new Error('a failed upgrade changed pods', { cause: error });
    proof.failedJobs.push(await findFailedJob(cluster, proof.failedJobs));
    return;
  } finally {
    await backends.primary.sql('alter role granary_tasks_owner login');
  }
  throw new Error('an upgrade with a broken migration succeeded');
}

/**
 * Returns the name of the Job of the migration that has just failed for want of its role, and that is kept for its log.
 * The Jobs in `earlier` have failed before.
 */
async function findFailedJob(cluster: Cluster, earlier: readonly string[]): Promise<string> {
  const { items } = JSON.parse(await cluster.kubectl('get', 'jobs', '--output=json')) as List<Job>;
  const failed = items.filter(({ status }) =>
    status.conditions?.some(({ type, reason }) => type === 'Failed' && reason === 'BackoffLimitExceeded'),
  );
  const names = failed.map(({ metadata }) => metadata.name).filter((each) => !earlier.includes(each));
  const [name] = names;
  if (name === undefined || names.length !== 1 || !name.startsWith('granary-migrate-')) {
    throw new Error(`one failed migration is expected, not ${names.join(', ') || 'none'}`);
  }
  const flags = ['--all-containers', '--tail=100', '--selector', `batch.kubernetes.io/job-name=${name}`];
  const log = await cluster.kubectl('logs', ...flags);
  if (!/not permitted to log in/.test(log)) throw new Error(`the log of the failed migration is gone:\n${log}`);
  return name;
}
