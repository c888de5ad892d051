import path from 'node:path';
import type { Cluster } from '../cluster/cluster';
import { loadProgram } from '../images/program-image';
import type { Proof } from '../proof/proof';
import { requireSuccess, type ResultBeside } from '../traffic/request-counts';
import { scaledSeconds, waitUntil } from '../waiting';

const [minReplicas, maxReplicas] = [2, 4];
const many = { writers: 24 };
const few = { writers: 2, pauseMs: 500 };
const scaleTimeoutMs = 180_000;
/** A new copy gets its share of the requests within this time. */
const servesWithinMs = 90_000;

/** Installs the metrics server. */
export async function startMetricsServer(
  cluster: Cluster,
  { program, directory }: { program: string; directory: string },
): Promise<void> {
  await loadProgram(cluster, { program, directory });
  await cluster.run('kubectl', 'apply', '-f', path.join(cluster.scripts, 'etc/metrics-server.yaml'));
  const status = ['rollout', 'status', 'deployment/metrics-server', `--timeout=${scaledSeconds(120)}`];
  await cluster.run('kubectl', '--namespace', 'kube-system', ...status);
}

/**
 * Proves that gateways are scaled from 2 to 4 by the processor time that clients cost, that each new one serves, and
 * that they are scaled back to 2.
 */
export async function autoscale(proof: Proof): Promise<string> {
  const settings = {
    'resources.requests.cpu': '100m',
    'autoscaling.enabled': 'true',
    'autoscaling.minReplicas': minReplicas,
    'autoscaling.maxReplicas': maxReplicas,
    'autoscaling.targetCPU': 60,
    'autoscaling.behavior.scaleDown.stabilizationWindowSeconds': 15,
  };
  const flags = Object.entries(settings).flatMap(([name, value]) => ['--set', `components.gateway.${name}=${value}`]);
  const revision = await proof.revision();
  await proof.upgrade(...flags);
  const results: ResultBeside[] = [];
  results.push(
    await proof.withClients(few, async () => {
      results.push(await proof.withClients(many, () => scaleUp(proof.cluster)));
      await waitUntil(
        `${minReplicas} gateways after the load`,
        async () => (await gateways(proof.cluster)).length === minReplicas,
        scaleTimeoutMs,
      );
    }),
  );
  await proof.rollback(revision);
  return results.map(requireSuccess).join('; ');
}

async function scaleUp(cluster: Cluster): Promise<void> {
  await waitUntil(
    `${maxReplicas} gateways under load`,
    async () => (await gateways(cluster)).length === maxReplicas,
    scaleTimeoutMs,
  );
  const names = await gateways(cluster);
  await Promise.all(names.map((name) => waitUntil(`${name} serves`, () => isServing(cluster, name), servesWithinMs)));
}

async function gateways(cluster: Cluster): Promise<string[]> {
  const selector = 'app.kubernetes.io/component=gateway';
  const line = '{range .items[?(@.status.phase=="Running")]}{.metadata.name}{"\\n"}{end}';
  const output = await cluster.kubectl('get', 'pods', '--selector', selector, '--output', `jsonpath=${line}`);
  return output.split('\n').filter((name) => name !== '');
}

/** Whether a gateway has answered requests of clients, by its own metrics. */
async function isServing(cluster: Cluster, name: string): Promise<boolean> {
  const program = `fetch('http://127.0.0.1:9464/metrics').then((r) => r.text()).then((text) => console.log(text))`;
  const text = await cluster.kubectl('exec', name, '--', '/usr/bin/node', '-e', program).catch(() => '');
  return /^granary_http_requests_total\{.*route="\/(store|list)".*\} [1-9]/m.test(text);
}
