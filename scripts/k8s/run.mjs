import { readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { runChild } from '../child.mjs';
import { buildImage } from '../image.mjs';
import { agrees } from './agreement.mjs';
import { autoscale, startMetricsServer } from './autoscaling.mjs';
import { backUp, restoreElsewhere } from './backup.mjs';
import { Backends, postgresService, secrets } from './backends.mjs';
import { Cluster, hostAddress, namespace } from './cluster.mjs';
import { makeDirectory } from './directory.mjs';
import { failOver } from './failover.mjs';
import { proveInPods } from './in-pods.mjs';
import { demoThroughIngress } from './ingress.mjs';
import { withinLimit } from './limit.mjs';
import { Proof } from './proof.mjs';
import { applyValuesFiles, removeDefinitions } from './values-files.mjs';

const nodes = 2;
const podKills = 12;

/** What is proved, in order. The short run takes those that are `isShort`; the first ones are always needed. */
const steps = [
  { title: 'install of the release before', isShort: true, run: (proof) => proof.install(proof.releaseBefore) },
  { title: 'upgrade to this release', isShort: true, run: (proof) => proof.beside(() => proof.upgrade()) },
  { title: 'helm test', isShort: true, run: (proof) => proof.smoke() },
  { title: 'who reaches whom', run: (proof) => proof.policies() },
  {
    title: 'the demo through an ingress',
    run: async (proof, parts) => {
      const { prepareTraefik } = await import('@granary/local/stack/cluster-tools');
      return demoThroughIngress(proof, { ...parts, traefik: await prepareTraefik(parts.say) });
    },
  },
  {
    title: 'an upgrade whose migration fails',
    isShort: true,
    run: (proof) => proof.beside(() => proof.brokenMigration()),
  },
  {
    title: 'rollback to the release before, and upgrade',
    isShort: true,
    run: (proof) =>
      proof.beside(async () => {
        await proof.rollback();
        await proof.upgrade();
      }),
  },
  {
    title: 'autoscaling',
    run: async (proof, { directory, say }) => {
      const { prepareMetricsServer } = await import('@granary/local/stack/cluster-tools');
      await startMetricsServer(proof.cluster, { directory, program: await prepareMetricsServer(say) });
      return autoscale(proof);
    },
  },
  { title: 'drain of a node', run: (proof) => proof.beside(() => proof.drain(`node${nodes}`)) },
  {
    title: `${podKills} pods killed`,
    run: (proof) => proof.beside(() => proof.kills(podKills), { mayFail: true }),
  },
  { title: 'failovers of Postgres', run: (proof) => failOver(proof) },
  { title: 'nothing acknowledged is lost', isShort: true, run: (proof) => proof.nothingLost() },
  { title: 'chain, ledger and events agree', isShort: true, run: (proof, parts) => agrees(proof, parts) },
  { title: 'backup', run: (proof, parts) => backUp(proof, parts) },
  { title: 'uninstall', isShort: true, run: (proof) => proof.uninstall() },
  {
    title: 'values files on the server',
    run: async (proof, parts) => {
      const found = await applyValuesFiles(proof, parts);
      await removeDefinitions(proof.cluster, parts.definitions);
      return found;
    },
  },
  {
    title: 'Helm 3',
    run: async (proof, { say }) => {
      const { prepareHelm3 } = await import('@granary/local/stack/cluster-tools');
      return proof.withHelm(await prepareHelm3(say));
    },
  },
  { title: 'restore into another cluster', run: (proof, parts) => restoreElsewhere(proof, parts) },
  { title: 'Postgres, Kafka and MinIO in pods that are killed', run: (proof, parts) => proveInPods(proof, parts) },
];

const neededSteps = 2;

/** Of the full run only those whose titles contain one of the texts `only`, if it is given. */
function chooseSteps({ isShort, only }) {
  if (isShort) return steps.filter((step) => step.isShort);
  return steps.filter(({ title }, at) => at < neededSteps || !only || only.some((text) => title.includes(text)));
}

/**
 * Proves the image and the chart of this built checkout in a cluster, which it makes and removes. Returns how many steps
 * `passed` and `failed`; the first that fails is the last. The abort of `signal` is a failure of the step that is running.
 */
export async function proveInCluster(root, { isShort, only, say, signal }) {
  const counts = { passed: 0, failed: 0 };
  let current = 'a cluster with the image';
  const { cache, callersOf, definitions, helm, minio, postgres } = await findTools(say);
  const directory = await makeDirectory();
  const home = path.join(cache, 'kube');
  const cluster = new Cluster({ root, home, helm, nodes: isShort ? 1 : nodes, signal, say });
  const backends = new Backends(cluster, { directory, postgres, minio });
  try {
    say('compiling Kubernetes; the first time that takes minutes');
    await cluster.build();
    const releases = await prepareReleases(root, { cache, directory, say });
    say('starting Kubernetes');
    const seed = await makeSeed(root);
    const startCluster = async () => {
      await cluster.up();
      for (const { archive } of releases) await cluster.load(archive);
      await makeSecrets(cluster, seed);
      await backends.start(path.join(root, 'deploy/postgres.sql'));
    };
    const replaceCluster = async () => {
      await backends.stop();
      await cluster.down();
      await startCluster();
    };
    await startCluster();
    const [release, releaseBefore] = releases.map(({ chart, tag }) => ({
      chart,
      values: valuesOf(chart, tag, Object.keys(callersOf)),
    }));
    const requestsMin = isShort ? 1_000 : 5_000;
    const proof = new Proof(cluster, { ...release, releaseBefore, callersOf, backends, requestsMin });
    counts.passed += 1;
    for (const { title, run } of chooseSteps({ isShort, only })) {
      current = title;
      const beganMs = performance.now();
      const found = await withinLimit(signal, () => run(proof, { root, directory, definitions, replaceCluster, say }));
      counts.passed += 1;
      say(`${title}: passed in ${((performance.now() - beganMs) / 1000).toFixed(0)} s${found ? `; ${found}` : ''}`);
    }
  } catch (error) {
    counts.failed += 1;
    const { message } = signal.aborted ? signal.reason : error;
    say(`${current}: FAILED\n${message}\n${await cluster.describe()}`);
  } finally {
    await backends.stop();
    await cluster.down();
    rmSync(directory, { recursive: true, force: true });
  }
  return counts;
}

async function findTools(say) {
  const { cacheFolder } = await import('@granary/local/stack/cache');
  const { prepareMinio } = await import('@granary/local/stack/minio-server');
  const { prepareChartTools } = await import('@granary/local/stack/chart-tools');
  const { findBinaries } = await import('@granary/local/postgres/binaries');
  const { callersOf } = await import('@granary/shared/trust/services');
  const cache = await cacheFolder();
  const user = { name: 'nobody', uid: 65534, gid: 65534 };
  const definitions = await prepareChartTools(say);
  return {
    ...{ cache, callersOf, minio: await prepareMinio(say), postgres: await findBinaries(user) },
    ...{ definitions, helm: path.join(definitions, 'helm') },
  };
}

/** The folder of the release before; undefined if its sources are missing, and may be. */
async function findReleaseBefore(say) {
  const { prepareReleaseBefore } = await import('@granary/local/stack/release-before');
  try {
    return await prepareReleaseBefore(say);
  } catch (error) {
    if (process.env.REQUIRE_STACK === '1') throw error;
    say(`UPGRADES ARE TESTED FROM THIS RELEASE ITSELF: ${error.message}`);
    return undefined;
  }
}

/** The chart and the image of this release and of the one before, in this order: `[{chart, tag, archive}]`. */
async function prepareReleases(root, { cache, directory, say }) {
  const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  const releases = [
    { sources: root, tag: version },
    { sources: (await findReleaseBefore(say)) ?? root, tag: 'before' },
  ];
  return Promise.all(
    releases.map(async ({ sources, tag }) => {
      const archive = path.join(directory, `image-${tag}.tar`);
      const reference = `registry.local/granary/granary:${tag}`;
      const { digest, bytes } = await buildImage(sources, { output: archive, reference, cache });
      say(`image ${tag}: ${digest}, ${(bytes / 1e6).toFixed(0)} MB`);
      return { chart: path.join(sources, 'charts/granary'), tag, archive };
    }),
  );
}

async function makeSeed(root) {
  const command = [path.join(root, 'services/finance/dist/main.js'), 'seed'];
  return (await runChild(process.execPath, command, { env: { PATH: process.env.PATH } })).output;
}

/** The namespace with its Secrets, as the README of the chart makes them. */
async function makeSecrets(cluster, seed) {
  await cluster.kubectl('create', 'namespace', namespace);
  await cluster.kubectl('label', 'namespace', namespace, 'pod-security.kubernetes.io/enforce=restricted');
  for (const [name, members] of Object.entries(secrets(seed))) {
    const literals = Object.entries(members).map(([key, value]) => `--from-literal=${key}=${value}`);
    await cluster.kubectl('create', 'secret', 'generic', name, ...literals);
  }
}

/** Requests of resources are small, so that two copies and those of a rollout fit on one small machine. */
function valuesOf(chart, tag, components) {
  const set = {
    'image.tag': tag,
    'postgres.host': postgresService,
    'postgres.tls.mode': 'disable',
    'objectStorage.endpoint': `http://${hostAddress}:9000`,
    ...Object.fromEntries(
      components.flatMap((name) => [
        [`components.${name}.resources.requests.cpu`, '80m'],
        [`components.${name}.resources.requests.memory`, '96Mi'],
      ]),
    ),
  };
  const flags = Object.entries(set).flatMap(([name, value]) => ['--set', `${name}=${value}`]);
  return ['-f', path.join(chart, 'ci/minimal-values.yaml'), ...flags];
}
