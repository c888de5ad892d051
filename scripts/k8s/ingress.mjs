import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { operatorKey } from './backends.mjs';
import { namespace } from './cluster.mjs';
import { connectCommand } from './connections.mjs';
import { eventually, scaledSeconds } from './eventually.mjs';
import { loadProgram } from './program-image.mjs';

const controller = 'ingress';
const hosts = { ingress: 'by-ingress.granary.test', httpRoute: 'by-route.granary.test' };
const gatewayFrom = { namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': controller } } };
const readyTimeout = scaledSeconds(120);
const routedWithinMs = 30_000;
/** Proxies commonly end requests after 60 s. */
const upload = { bytesPerSecond: 25_000, seconds: 80, secondsMin: 60 };

/**
 * The demo and a slow upload, by an Ingress and by an HTTPRoute of a Gateway at once, each with its own host name,
 * while the network policies admit nobody but the controller to the gateway.
 */
export async function demoThroughIngress(proof, { root, directory, traefik }) {
  const { cluster } = proof;
  const apps = [];
  for (const host of Object.values(hosts)) apps.push(await makeApp(proof, host));
  const definitions = await startController(cluster, { directory, traefik });
  const file = path.join(directory, 'values-ingress.json');
  writeFileSync(file, JSON.stringify(values()));
  const began = await proof.revision();
  await proof.upgrade('-f', file);
  await proof.smoke();
  await expectControllerOnly(cluster);
  const address = await controllerAddress(cluster);
  const hostsFile = path.join(directory, 'hosts');
  writeFileSync(hostsFile, `127.0.0.1 localhost\n${address} ${Object.values(hosts).join(' ')}\n`);
  const results = await Promise.all(apps.map((app) => use(cluster, app, { root, directory, hostsFile })));
  await proof.rollback(began);
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

async function makeApp(proof, host) {
  const made = await proof.request('POST', '/api/applications', { 'x-operator-key': operatorKey }, { name: host });
  return { host, id: made.app_id, key: made.app_key };
}

const resources = (cluster) => path.join(cluster.scripts, 'etc/ingress.yaml');

/**
 * `traefik` is the folder of the program and of the definitions of Gateway API, whose flags for kubectl are returned.
 */
async function startController(cluster, { directory, traefik }) {
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

const controllerAddress = (cluster) =>
  cluster.run(
    ...['kubectl', '--namespace', controller, 'get', 'service', 'traefik', '--output', 'jsonpath={.spec.clusterIP}'],
  );

/** A pod of another namespace reaches the controller, but not the gateway. */
async function expectControllerOnly(cluster) {
  const kubectl = (...args) => cluster.run('kubectl', '--namespace', 'default', ...args);
  const targets = [`granary-gateway.${namespace}`, `traefik.${controller}`].map((host) => ({ host, port: 80 }));
  const container = 'jsonpath={.spec.template.spec.containers[0].image}';
  const image = await cluster.kubectl('get', 'deployment', 'granary-gateway', '--output', container);
  const flags = ['--restart=Never', `--image=${image}`, '--image-pull-policy=IfNotPresent'];
  await kubectl('run', 'stranger', ...flags, '--command', '--', ...connectCommand(targets));
  await kubectl('wait', '--for=jsonpath={.status.phase}=Succeeded', 'pod/stranger', `--timeout=${readyTimeout}`);
  const connected = (await kubectl('logs', 'stranger')).trim();
  await kubectl('delete', 'pod', 'stranger');
  const wanted = JSON.stringify(['timeout', 'open']);
  if (connected !== wanted) throw new Error(`connections to gateway and controller: ${connected}, not ${wanted}`);
}

/** Runs the demo of this checkout as `app` at its host, and uploads a file slowly meanwhile. */
async function use(cluster, app, { root, directory, hostsFile }) {
  const url = `http://${app.host}`;
  // Nothing but these programs sees the names of the hosts.
  const mounted = 'mount --bind "$0" /etc/hosts && exec "$@"';
  const run = (...command) => cluster.run('unshare', '--mount', 'sh', '-c', mounted, hostsFile, ...command);
  const isRouted = () =>
    run('curl', '--silent', '--fail', '--max-time', '5', `${url}/readyz`).then(
      () => true,
      () => false,
    );
  await eventually(`${app.host} leads to the gateway`, isRouted, routedWithinMs);
  const demo = path.join(root, 'scripts/demo.mjs');
  const [seconds] = await Promise.all([
    uploadSlowly(run, app, { url, directory }),
    run(process.execPath, demo, '--url', url, '--app', app.id, '--key', app.key),
  ]);
  return `${app.host}: the demo, and an upload of ${seconds} s`;
}

/** Returns how many seconds it took. */
async function uploadSlowly(run, app, { url, directory }) {
  const { bytesPerSecond, seconds, secondsMin } = upload;
  const [sent, received] = ['sent', 'received'].map((name) => path.join(directory, `${name}-${app.host}`));
  writeFileSync(sent, randomBytes(bytesPerSecond * seconds));
  const curl = (...args) => run('curl', '-sS', '--fail-with-body', '-H', `x-app-key: ${app.key}`, ...args);
  const blobs = `${url}/api/apps/${app.id}/blobs/slow`;
  const output = await curl(
    ...['--limit-rate', String(bytesPerSecond), '--write-out', '\n%{time_total}'],
    ...['-H', 'content-type: application/octet-stream', '--data-binary', `@${sent}`, blobs],
  );
  const [answer, took] = output.split('\n');
  if (!(Number(took) > secondsMin)) throw new Error(`the slow upload took ${took} s, no longer than ${secondsMin} s`);
  await curl('--output', received, `${blobs}/${JSON.parse(answer).blob_id}`);
  if (!readFileSync(received).equals(readFileSync(sent))) throw new Error('another file came back than was uploaded');
  return Math.round(took);
}
