import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { runChild } from './child.mjs';
import { prepare } from './launch.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const packages = [
  'containerd',
  'runc',
  'containernetworking-plugins',
  'iptables',
  'iproute2',
  'openssl',
  'postgresql-client',
  'curl',
];
const commands = [
  'containerd',
  'runc',
  'iptables',
  'ip',
  'openssl',
  'psql',
  'curl',
  'unshare',
  'nsenter',
  'setpriv',
  'go',
];
const nodes = 2;
const podKills = 12;

const say = (text) => console.log(`${new Date().toISOString().slice(11, 19)} ${text}`);

/** Installs what is missing on Debian, or throws with its names. */
async function requireCommands() {
  if (process.platform !== 'linux' || process.getuid() !== 0) throw new Error('A cluster needs Linux and root.');
  const missing = async () => {
    const look = `for name in ${commands.join(' ')}; do command -v $name > /dev/null || echo $name; done`;
    return (await runChild('sh', ['-c', look])).output.split('\n').filter((name) => name !== '');
  };
  if ((await missing()).length === 0) return;
  say(`installing ${packages.join(', ')}`);
  await runChild('apt-get', ['install', '-y', '--no-install-recommends', ...packages]).catch(() => undefined);
  const left = await missing();
  if (left.length > 0) throw new Error(`These commands are missing: ${left.join(', ')}.`);
}

async function tools() {
  const { cacheFolder } = await import('@granary/local/stack/cache');
  const { prepareMinio } = await import('@granary/local/stack/minio-server');
  const { prepareChartTools } = await import('@granary/local/stack/chart-tools');
  const { findBinaries } = await import('@granary/local/postgres/binaries');
  const { callersOf } = await import('@granary/shared/trust/services');
  const cache = await cacheFolder();
  const user = { name: 'nobody', uid: 65534, gid: 65534 };
  return {
    ...{ cache, callersOf, minio: await prepareMinio(say), postgres: await findBinaries(user) },
    helm: path.join(await prepareChartTools(say), 'helm'),
  };
}

async function prove(proof) {
  await proof.install();
  await proof.policies();
  await proof.beside('upgrade', () => proof.upgrade());
  await proof.beside('an upgrade whose migration fails', () => proof.brokenMigration());
  await proof.beside('rollback', () => proof.rollback());
  await proof.beside('drain of a node', () => proof.drain(`node${nodes}`));
  await proof.beside(`${podKills} pods killed`, () => proof.kills(podKills), { mayFail: true });
  await proof.nothingLost();
  await proof.uninstall();
}

/** The namespace with its Secrets, as the README of the chart makes them. */
async function makeSecrets(cluster) {
  const { namespace } = await import('./k8s/cluster.mjs');
  const { secrets } = await import('./k8s/backends.mjs');
  await cluster.kubectl('create', 'namespace', namespace);
  await cluster.kubectl('label', 'namespace', namespace, 'pod-security.kubernetes.io/enforce=restricted');
  const seed = await runChild(process.execPath, [path.join(root, 'services/finance/dist/main.js'), 'seed'], {
    env: { PATH: process.env.PATH },
  });
  for (const [name, members] of Object.entries(secrets(seed.output))) {
    const literals = Object.entries(members).map(([key, value]) => `--from-literal=${key}=${value}`);
    await cluster.kubectl('create', 'secret', 'generic', name, ...literals);
  }
}

/** Runs everything, and leaves nothing but the caches; after an interruption deploy/kube/down.sh removes the rest. */
async function main() {
  await requireCommands();
  await prepare();
  const { Cluster, hostAddress } = await import('./k8s/cluster.mjs');
  const { startBackends } = await import('./k8s/backends.mjs');
  const { Proof } = await import('./k8s/proof.mjs');
  const { buildImage } = await import('./image.mjs');
  const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  const { cache, callersOf, helm, minio, postgres } = await tools();
  const directory = mkdtempSync(path.join(os.tmpdir(), 'granary-k8s-'));
  const cluster = new Cluster({ root, home: path.join(cache, 'kube'), helm, nodes });
  let backends;
  try {
    say('starting Kubernetes; the first time it is compiled, which takes minutes');
    await cluster.up();
    const archive = path.join(directory, 'image.tar');
    const { digest, bytes } = await buildImage(root, {
      output: archive,
      reference: `registry.local/granary/granary:${version}`,
      cache,
    });
    say(`image ${digest}, ${(bytes / 1e6).toFixed(0)} MB`);
    await cluster.load(archive);
    backends = await startBackends(cluster, {
      directory,
      postgres,
      minio,
      sqlFile: path.join(root, 'deploy/postgres.sql'),
    });
    await makeSecrets(cluster);
    const chart = path.join(root, 'charts/granary');
    const set = {
      'postgres.host': hostAddress,
      'postgres.tls.mode': 'disable',
      'objectStorage.endpoint': `http://${hostAddress}:9000`,
    };
    const values = [
      '-f',
      path.join(chart, 'ci/minimal-values.yaml'),
      ...Object.entries(set).flatMap(([name, value]) => ['--set', `${name}=${value}`]),
    ];
    await prove(new Proof(cluster, { chart, values, callersOf, sql: backends.sql, say }));
    say('passed');
  } finally {
    await backends?.stop();
    await cluster.down();
    rmSync(directory, { recursive: true, force: true });
  }
}

try {
  await main();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
