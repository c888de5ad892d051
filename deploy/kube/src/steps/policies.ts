import type { ServiceName } from '@granary/shared/trust/services';
import type { Cluster } from '../cluster/cluster';
import type { List, Pod } from '../cluster/kubernetes';
import type { Proof } from '../proof/proof';
import { connectCommand, type Target } from './connections';

const metricsPort = 9464;

type Callers = Proof['callersOf'];

/** A pod that runs. */
interface RunningPod {
  name: string;
  address: string;
}

/** A port of a service, with the services whose pods may connect to it. */
interface Port {
  port: number;
  callers: readonly ServiceName[];
}

interface PortOfPod extends Port, Target {
  service: ServiceName;
  /** Whether the pod connects to itself. */
  isSame: boolean;
}

/** The result of a connection, and the result that the policies are meant to have. */
interface Connection {
  caller: ServiceName;
  target: string;
  isSame: boolean;
  result: string;
  expected: string;
}

/**
 * Proves that a pod of each service can connect to each port of another pod of each service exactly if the policies are
 * meant to let it: `callersOf` for calls, the gateway alone for the bytes of blobs, and no pod of the release for the
 * requests of clients and for metrics.
 */
export async function provePolicies({ cluster, callersOf }: Proof): Promise<string> {
  const services = Object.keys(callersOf) as ServiceName[];
  const pods = await podsOf(cluster, services);
  const targets = pods.flatMap(({ service, last }) => targetsOf(service, last, callersOf));
  const ofCallers = pods.map(({ service: caller, first: pod }) => {
    // A port that is closed to others must be closed by a policy, and not for want of a listener: a pod always reaches
    // itself.
    const samePod = targetsOf(caller, pod, callersOf).map((port) => ({ ...port, callers: [caller], isSame: true }));
    return connect(cluster, { caller, pod, targets: [...targets, ...samePod] });
  });
  const connections = (await Promise.all(ofCallers)).flat();
  const wrong = connections.filter(({ result, expected }) => result !== expected);
  if (wrong.length > 0) {
    const lines = wrong.map(
      ({ caller, target, result, expected }) => `${caller} to ${target}: ${result}, not ${expected}`,
    );
    throw new Error(`pods connect otherwise than the policies are meant:\n${lines.join('\n')}`);
  }
  const open = connections.filter(({ result, isSame }) => result === 'open' && !isSame).length;
  return `${targets.length} ports, each from ${services.length} pods: ${open} connections are open`;
}

/** The ports on which a service listens. */
function portsOf(service: ServiceName, callers: readonly ServiceName[]): Port[] {
  const calls: Port = service === 'gateway' ? { port: 8080, callers: [] } : { port: 5000, callers };
  const bytes: Port[] = service === 'blobs' ? [{ port: 5001, callers: ['gateway'] }] : [];
  return [calls, ...bytes, { port: metricsPort, callers: [] }];
}

const targetsOf = (service: ServiceName, { address }: RunningPod, callersOf: Callers): PortOfPod[] =>
  portsOf(service, callersOf[service]).map((port) => ({ ...port, service, host: address, isSame: false }));

/** Opens connections from a pod, and returns their results. */
async function connect(
  cluster: Cluster,
  { caller, pod, targets }: { caller: ServiceName; pod: RunningPod; targets: readonly PortOfPod[] },
): Promise<Connection[]> {
  const command = connectCommand(targets.map(({ host, port }) => ({ host, port })));
  const output = await cluster.kubectl('exec', pod.name, '--', ...command);
  const results = JSON.parse(output.slice(output.indexOf('['))) as string[];
  return targets.map(({ service, host, port, callers, isSame }, index) => ({
    caller,
    isSame,
    target: `${service} at ${host}:${port}`,
    result: results[index] ?? 'no result',
    expected: callers.includes(caller) ? 'open' : 'timeout',
  }));
}

/** The first and the last of the pods of each service. Throws if a service has none. */
async function podsOf(
  cluster: Cluster,
  services: readonly ServiceName[],
): Promise<{ service: ServiceName; first: RunningPod; last: RunningPod }[]> {
  const selector = ['--selector', 'app.kubernetes.io/instance=granary', '--field-selector=status.phase=Running'];
  const { items } = JSON.parse(await cluster.kubectl('get', 'pods', ...selector, '--output=json')) as List<Pod>;
  return services.map((service) => {
    const pods = items
      .filter(({ metadata }) => metadata.deletionTimestamp === undefined)
      .filter(({ metadata }) => metadata.labels['app.kubernetes.io/component'] === service)
      .map(({ metadata, status }) => ({ name: metadata.name, address: status.podIP ?? '' }));
    const [first, last] = [pods[0], pods.at(-1)];
    if (first === undefined || last === undefined) throw new Error(`no pod of ${service} is running`);
    return { service, first, last };
  });
}
