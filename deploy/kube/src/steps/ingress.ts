import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { namespace, type Cluster } from '../cluster/cluster';
import { loadProgram } from '../images/program-image';
import type { Proof } from '../proof/proof';
import type { App } from '../traffic/clients';
import { scaledSeconds, waitUntil } from '../waiting';
import { connectCommand } from './connections';

const controller = 'ingress';
const hosts = { ingress: 'by-ingress.granary.test', httpRoute: 'by-route.granary.test' };
const gatewayFrom = { namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': controller } } };
const readyTimeout = scaledSeconds(120);
const routedWithinMs = 30_000;
/** The upload takes longer than 60 s, after which proxies commonly end requests. */
const upload = { bytesPerSecond: 25_000, seconds: 80, secondsMin: 60 };

/** An app that is used by one host name of the gateway. */
interface HostedApp extends App {
  host: string;
}

interface IngressParts {
  /** The folder of the checkout. */
  root: string;
  /** The folder for temporary files. */
  directory: string;
  /** The folder of the program Traefik and of the definitions of Gateway API. */
  traefik: string;
}

/** Runs a program that can resolve the names of the hosts. */
type RunWithHosts = (...command: string[]) => Promise<string>;

/**
 * Runs the demo and a slow upload through an Ingress and through an HTTPRoute of a Gateway at once, each with its own
 * host name, while the network policies admit nobody but the controller to the gateway.
 */
export async function demoThroughIngress(proof: Proof, { root, directory, traefik }: IngressParts): Promise<string> {
  const { cluster, gateway } = proof;
  const apps: HostedApp[] = [];
  for (const host of Object.values(hosts)) apps.push({ host, ...(await gateway.makeApp(host)) });
  const definitions = await startController(cluster, { directory, traefik });
  const file = path.join(directory, 'values-ingress.json');
  writeFileSync(file, JSON.stringify(values()));
  const revision = await proof.revision();
  await proof.upgrade('-f', file);
  await proof.smoke();
  await expectControllerOnly(cluster);
  const address = await controllerAddress(cluster);
  const hostsFile = path.join(directory, 'hosts');
  writeFileSync(hostsFile, `127.0.0.1 localhost\n${address} ${Object.values(hosts).join(' ')}\n`);
  const results = await Promise.all(apps.map((app) => use(cluster, app, { root, directory, hostsFile })));
  await proof.rollback(revision);
  await cluster.run('kubectl', 'delete', '--filename', resources(cluster));
  await cluster.run('kubectl', 'delete', ...definitions);
  return results.join('; ');
}

const values = () => ({
  ingress: { enabled: true, className: 'traefik', hosts: [hosts.ingress] },
  httpRoute: {
    enabled: true,
    parentRefs: [{ name: 'traefik', namespace: controller }],
    hostnames: [hosts.httpRoute],
  },
  networkPolicy: { gatewayFrom: [gatewayFrom] },
  components: { gateway: { env: { TRUST_PROXY: '1' } } },
});

const resources = (cluster: Cluster): string => path.join(cluster.scripts, 'etc/ingress.yaml');

/** Starts Traefik. Returns the flags for kubectl that name the definitions of Gateway API. */
async function startController(
  cluster: Cluster,
  { directory, traefik }: Omit<IngressParts, 'root'>,
): Promise<string[]> {
  await loadProgram(cluster, { program: path.join(traefik, 'traefik'), directory });
  const names = readdirSync(traefik).filter((name) => name.endsWith('.yaml'));
  const definitions = names.flatMap((name) => ['--filename', path.join(traefik, name)]);
  await cluster.run('kubectl', 'apply', '--server-side', ...definitions);
  await cluster.run('kubectl', 'wait', '--for=condition=Established', ...definitions, `--timeout=${readyTimeout}`);
  await cluster.run('kubectl', 'apply', '--filename', resources(cluster));
  const status = ['rollout', 'status', 'deployment/traefik', `--timeout=${readyTimeout}`];
  await cluster.run('kubectl', '--namespace', controller, ...status);
  return definitions;
}

const controllerAddress = (cluster: Cluster): Promise<string> =>
  cluster.run(
    ...['kubectl', '--namespace', controller, 'get', 'service', 'traefik', '--output', 'jsonpath={.spec.clusterIP}'],
  );

/** Throws unless a pod of another namespace reaches the controller, but not the gateway. */
async function expectControllerOnly(cluster: Cluster): Promise<void> {
  const kubectl = (...args: string[]): Promise<string> => cluster.run('kubectl', '--namespace', 'default', ...args);
  const targets = [`granary-gateway.${namespace}`, `traefik.${controller}`].map((host) => ({ host, port: 80 }));
  const container = 'jsonpath={.spec.template.spec.containers[0].image}';
  const image = await cluster.kubectl('get', 'deployment', 'granary-gateway', '--output', container);
  const flags = ['--restart=Never', `--image=${image}`, '--image-pull-policy=IfNotPresent'];
  await kubectl('run', 'stranger', ...flags, '--command', '--', ...connectCommand(targets));
  await kubectl('wait', '--for=jsonpath={.status.phase}=Succeeded', 'pod/stranger', `--timeout=${readyTimeout}`);
  const connected = (await kubectl('logs', 'stranger')).trim();
  await kubectl('delete', 'pod', 'stranger');
  const expected = JSON.stringify(['timeout', 'open']);
  if (connected !== expected) throw new Error(`connections to gateway and controller: ${connected}, not ${expected}`);
}

/** Runs the demo of this checkout as `app` at its host, and uploads a file slowly meanwhile. */
async function use(
  cluster: Cluster,
  app: HostedApp,
  { root, directory, hostsFile }: { root: string; directory: string; hostsFile: string },
): Promise<string> {
  const url = `http://${app.host}`;
  // Only these programs can resolve the names of the hosts.
  const mounted = 'mount --bind "$0" /etc/hosts && exec "$@"';
  const run: RunWithHosts = (...command) =>
    cluster.run('unshare', '--mount', 'sh', '-c', mounted, hostsFile, ...command);
  const isRouted = (): Promise<boolean> =>
    run('curl', '--silent', '--fail', '--max-time', '5', `${url}/readyz`).then(
      () => true,
      () => false,
    );
  await waitUntil(`${app.host} leads to the gateway`, isRouted, routedWithinMs);
  const demo = path.join(root, 'scripts/demo.mjs');
  const [seconds] = await Promise.all([
    uploadSlowly(run, app, { url, directory }),
    run(process.execPath, demo, '--url', url, '--app', app.id, '--key', app.key),
  ]);
  return `${app.host}: the demo, and an upload of ${seconds} s`;
}

/** Uploads a file slowly, and compares it when it comes back. Returns how many seconds the upload took. */
async function uploadSlowly(
  run: RunWithHosts,
  app: HostedApp,
  { url, directory }: { url: string; directory: string },
): Promise<number> {
  const { bytesPerSecond, seconds, secondsMin } = upload;
  const sent = path.join(directory, `sent-${app.host}`);
  const received = path.join(directory, `received-${app.host}`);
  writeFileSync(sent, randomBytes(bytesPerSecond * seconds));
  const curl = (...args: string[]): Promise<string> =>
    run('curl', '-sS', '--fail-with-body', '-H', `x-app-key: ${app.key}`, ...args);
  const blobs = `${url}/api/apps/${app.id}/blobs/slow`;
  const output = await curl(
    ...['--limit-rate', String(bytesPerSecond), '--write-out', '\n%{time_total}'],
    ...['-H', 'content-type: application/octet-stream', '--data-binary', `@${sent}`, blobs],
  );
  const [answer = '', took] = output.split('\n');
  if (!(Number(took) > secondsMin)) throw new Error(`the slow upload took ${took} s, no longer than ${secondsMin} s`);
  const { blob_id: id } = JSON.parse(answer) as { blob_id: string };
  await curl('--output', received, `${blobs}/${id}`);
  if (!readFileSync(received).equals(readFileSync(sent))) throw new Error('another file came back than was uploaded');
  return Math.round(Number(took));
}
