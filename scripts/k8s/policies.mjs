import { connectCommand } from './connections.mjs';

const metricsPort = 9464;

/**
 * A pod of each service connects to each port of another pod of each service exactly if the policies are meant to let
 * it: `callersOf` for calls, the gateway alone for the bytes of blobs, and no pod of the release for the requests of
 * clients and for metrics.
 */
export async function provePolicies({ cluster, callersOf }) {
  const pods = await podsOf(cluster);
  const services = Object.keys(callersOf);
  const targets = services.flatMap((service) => targetsOf(service, pods[service].at(-1), callersOf));
  const ofCallers = services.map((caller) => {
    const [pod] = pods[caller];
    // What is closed to others must be so by a policy, and not for want of a listener: a pod always reaches itself.
    const own = targetsOf(caller, pod, callersOf).map((target) => ({ ...target, callers: [caller], isOwn: true }));
    return connect(cluster, { caller, pod, targets: [...targets, ...own] });
  });
  const found = (await Promise.all(ofCallers)).flat();
  const wrong = found.filter(({ result, wanted }) => result !== wanted);
  if (wrong.length > 0) {
    const lines = wrong.map(({ caller, target, result, wanted }) => `${caller} to ${target}: ${result}, not ${wanted}`);
    throw new Error(`pods connect otherwise than the policies are meant:\n${lines.join('\n')}`);
  }
  const open = found.filter(({ result, isOwn }) => result === 'open' && !isOwn).length;
  return `${targets.length} ports, each from ${services.length} pods: ${open} connections are open`;
}

/** The ports on which a service listens, with the services that may connect. */
function portsOf(service, callers) {
  const calls = service === 'gateway' ? { port: 8080, callers: [] } : { port: 5000, callers };
  const bytes = service === 'blobs' ? [{ port: 5001, callers: ['gateway'] }] : [];
  return [calls, ...bytes, { port: metricsPort, callers: [] }];
}

const targetsOf = (service, { address }, callersOf) =>
  portsOf(service, callersOf[service]).map((port) => ({ ...port, service, host: address }));

/** What becomes of connections from a pod, as `[{caller, target, result, wanted}]`. */
async function connect(cluster, { caller, pod, targets }) {
  const command = connectCommand(targets.map(({ host, port }) => ({ host, port })));
  const output = await cluster.kubectl('exec', pod.name, '--', ...command);
  const results = JSON.parse(output.slice(output.indexOf('[')));
  return targets.map(({ service, host, port, callers, isOwn }, at) => ({
    caller,
    isOwn,
    target: `${service} at ${host}:${port}`,
    result: results[at],
    wanted: callers.includes(caller) ? 'open' : 'timeout',
  }));
}

/** The pods of each service, as `{service: [{name, address}]}`. */
async function podsOf(cluster) {
  const selector = ['--selector', 'app.kubernetes.io/instance=granary', '--field-selector=status.phase=Running'];
  const { items } = JSON.parse(await cluster.kubectl('get', 'pods', ...selector, '--output=json'));
  const pods = {};
  for (const { metadata, status } of items) {
    if (metadata.deletionTimestamp !== undefined) continue;
    const service = metadata.labels['app.kubernetes.io/component'];
    (pods[service] ??= []).push({ name: metadata.name, address: status.podIP });
  }
  return pods;
}
