import path from 'node:path';
import { eventually, scaledSeconds } from './eventually.mjs';
import { loadProgram } from './program-image.mjs';
import { requireSuccess } from './request-counts.mjs';

const [minReplicas, maxReplicas] = [2, 4];
const many = { writers: 24 };
const few = { writers: 2, pauseMs: 500 };
const scaleTimeoutMs = 180_000;
/** A new copy gets its share of the requests within this time. */
const servesWithinMs = 90_000;

/** Installs the metrics server. */
export async function startMetricsServer(cluster, { program, directory }) {
  await loadProgram(cluster, { program, directory });
  await cluster.run('kubectl', 'apply', '-f', path.join(cluster.scripts, 'etc/metrics-server.yaml'));
  const status = ['rollout', 'status', 'deployment/metrics-server', `--timeout=${scaledSeconds(120)}`];
  await cluster.run('kubectl', '--namespace', 'kube-system', ...status);
}

/**
 * Gateways are scaled from 2 to 4 by the processor time that clients cost, where each new one serves, and back to 2.
 */
export async function autoscale(proof) {
  const set = {
    'resources.requests.cpu': '100m',
    'autoscaling.enabled': 'true',
    'autoscaling.minReplicas': minReplicas,
    'autoscaling.maxReplicas': maxReplicas,
    'autoscaling.targetCPU': 60,
    'autoscaling.behavior.scaleDown.stabilizationWindowSeconds': 15,
  };
  const flags = Object.entries(set).flatMap(([name, value]) => ['--set', `components.gateway.${name}=${value}`]);
  const began = await proof.revision();
  await proof.upgrade(...flags);
  const results = [];
  results.push(
    await proof.withClients(few, async () => {
      results.push(await proof.withClients(many, () => scaleUp(proof.cluster)));
      await eventually(
        `${minReplicas} gateways after the load`,
        async () => (await gateways(proof.cluster)).length === minReplicas,
        scaleTimeoutMs,
      );
    }),
  );
  await proof.rollback(began);
  return results.map(requireSuccess).join('; ');
}

async function scaleUp(cluster) {
  await eventually(
    `${maxReplicas} gateways under load`,
    async () => (await gateways(cluster)).length === maxReplicas,
    scaleTimeoutMs,
  );
  const names = await gateways(cluster);
  await Promise.all(names.map((name) => eventually(`${name} serves`, () => isServing(cluster, name), servesWithinMs)));
}

async function gateways(cluster) {
  const selector = 'app.kubernetes.io/component=gateway';
  const path = '{range .items[?(@.status.phase=="Running")]}{.metadata.name}{"\\n"}{end}';
  const output = await cluster.kubectl('get', 'pods', '--selector', selector, '--output', `jsonpath=${path}`);
  return output.split('\n').filter((name) => name !== '');
}

/** Whether a gateway has answered requests of clients, by its own metrics. */
async function isServing(cluster, name) {
  const program = `fetch('http://127.0.0.1:9464/metrics').then((r) => r.text()).then((text) => console.log(text))`;
  const text = await cluster.kubectl('exec', name, '--', '/usr/bin/node', '-e', program).catch(() => '');
  return /^granary_http_requests_total\{.*route="\/(store|list)".*\} [1-9]/m.test(text);
}
