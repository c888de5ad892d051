import { slowness } from '@granary/testing/speed';
import { readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { runChild } from '../child.mjs';
import { buildImage } from '../image.mjs';
import { agrees } from './agreement.mjs';
import { autoscale, startMetricsServer } from './autoscaling.mjs';
import { backUp, restoreElsewhere } from './backup.mjs';
import { Backends, postgresService, secrets } from './backends.mjs';
import { Cluster, hostAddress, lastLines, namespace } from './cluster.mjs';
import { makeDirectory } from './directory.mjs';
import { failOver } from './failover.mjs';
import { proveInPods } from './in-pods.mjs';
import { demoThroughIngress } from './ingress.mjs';
import { withinLimit } from './limit.mjs';
import { provePolicies } from './policies.mjs';
import { Proof } from './proof.mjs';
import { applyValuesFiles, removeDefinitions } from './values-files.mjs';

const nodes = 2;
const podKills = 12;
/** That Helm gives to the release before. */
const installRevision = '1';
/**
 * Kinds of clients that the release before fails while pods are replaced: its gateways wait up to 30 s for pods of
 * blobs that are gone. A release before without that fault needs no exception.
 */
const failedBefore = ['blob'];
/** Of the message of a failure, in the summary of all tests. */
const linesShown = 15;
/**
 * Values that the release before needs here: its migrations do not wait for a Postgres that cannot be reached, such as
 * before the network policies let a new pod through, and one failure of each of the five containers is beyond its own
 * limit.
 */
const valuesBefore = ['--set', 'migrations.backoffLimit=30'];
/** Of a short run on the reference machine, once everything is compiled. */
const shortRunMs = 240_000;

/**
 * What is proved, in order. The short run takes those that are `isShort`; the first ones are always needed. Those that
 * are `ofThisRelease` begin only if this release is what runs.
 */
const steps = [
  { title: 'install of the release before', isShort: true, run: (proof) => proof.install(proof.releaseBefore) },
  {
    title: 'upgrade to this release',
    isShort: true,
    run: (proof) => proof.beside({ upgrade: () => proof.upgrade() }, { without: failedBefore }),
  },
  { title: 'helm test', isShort: true, ofThisRelease: true, run: (proof) => proof.smoke() },
  { title: 'who reaches whom', ofThisRelease: true, run: (proof) => provePolicies(proof) },
  {
    title: 'the demo through an ingress',
    ofThisRelease: true,
    run: async (proof, parts) => {
      const { prepareTraefik } = await import('@granary/stack/tools/cluster-tools');
      return demoThroughIngress(proof, { ...parts, traefik: await prepareTraefik(parts.say) });
    },
  },
  {
    title: 'an upgrade whose migration fails',
    isShort: true,
    ofThisRelease: true,
    run: (proof) => proof.beside({ upgrade: () => proof.brokenMigration() }),
  },
  {
    title: 'rollback to the release before, and upgrade',
    isShort: true,
    ofThisRelease: true,
    run: (proof) => {
      const changes = { rollback: () => proof.rollback(installRevision), upgrade: () => proof.upgrade() };
      return proof.beside(changes, { requestsMin: proof.requestsMin, without: failedBefore });
    },
  },
  {
    title: 'autoscaling',
    ofThisRelease: true,
    run: async (proof, { directory, say }) => {
      const { prepareMetricsServer } = await import('@granary/stack/tools/cluster-tools');
      await startMetricsServer(proof.cluster, { directory, program: await prepareMetricsServer(say) });
      return autoscale(proof);
    },
  },
  {
    title: 'drain of a node',
    ofThisRelease: true,
    run: (proof) => {
      // The pods of one that was drained stay on the other.
      const changes = { drain: (round) => proof.drain(`node${nodes - (round % nodes)}`) };
      return proof.beside(changes, { requestsMin: proof.requestsMin });
    },
  },
  {
    title: `${podKills} pods killed`,
    ofThisRelease: true,
    run: (proof) => proof.beside({ kills: () => proof.kills(podKills) }, { mayFail: true }),
  },
  { title: 'failovers of Postgres', ofThisRelease: true, run: (proof) => failOver(proof) },
  { title: 'nothing acknowledged is lost', isShort: true, ofThisRelease: true, run: (proof) => proof.nothingLost() },
  {
    title: 'chain, ledger and events agree',
    isShort: true,
    ofThisRelease: true,
    run: (proof, parts) => agrees(proof, parts),
  },
  { title: 'backup', ofThisRelease: true, run: (proof, parts) => backUp(proof, parts) },
  { title: 'uninstall', isShort: true, run: (proof) => proof.uninstall() },
  { title: 'install of this release into empty databases', isShort: true, run: (proof) => proof.anew() },
  {
    title: 'values files on the server',
    isShort: true,
    run: async (proof, parts) => {
      const found = await applyValuesFiles(proof, parts);
      await removeDefinitions(proof.cluster, parts.definitions);
      return found;
    },
  },
  {
    title: 'Helm 3',
    run: async (proof, { say }) => {
      const { prepareHelm3 } = await import('@granary/stack/tools/cluster-tools');
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
 * Proves the image and the chart of this built checkout in a cluster, which it makes and removes. Returns how many
 * steps `passed` and `failed`; the first that fails is the last, and `failure` says why. The abort of `signal` is a
 * failure of the step that is running.
 */
export async function proveInCluster(root, { isShort, only, say, signal }) {
  const counts = { passed: 0, failed: 0 };
  let current = 'a cluster with the image';
  const startedMs = performance.now();
  let warmMs;
  const { cache, definitions, helm, minio, postgres, ...tools } = await findTools(say);
  const directory = await makeDirectory();
  const home = path.join(cache, 'kube');
  const cluster = new Cluster({ root, home, helm, nodes: isShort ? 1 : nodes, signal, say });
  const sqlFile = path.join(root, 'deploy/postgres.sql');
  const backends = new Backends(cluster, { directory, postgres, minio, sqlFile });
  try {
    say('compiling Kubernetes; the first time that takes minutes');
    await cluster.build();
    const before = await findReleaseBefore(say);
    warmMs = performance.now();
    const releases = await makeImages(root, before, { directory, say });
    say('starting Kubernetes');
    const startCluster = await clusterStarter(root, { cluster, backends, releases });
    const replaceCluster = async () => {
      await backends.stop();
      await cluster.down();
      await startCluster();
    };
    await startCluster();
    const proof = makeProof(cluster, { ...tools, releases, backends, requestsMin: isShort ? 500 : 5_000 });
    counts.passed += 1;
    for (const step of chooseSteps({ isShort, only })) {
      current = step.title;
      const parts = { root, directory, definitions, replaceCluster, say };
      await withinLimit(signal, () => runStep(step, proof, parts));
      counts.passed += 1;
    }
  } catch (error) {
    counts.failed += 1;
    const { message } = signal.aborted ? signal.reason : error;
    counts.failure = `${current}: ${lastLines(message, linesShown)}`;
    say(`${current}: FAILED\n${message}\n${await cluster.describe()}`);
  } finally {
    await backends.stop();
    await cluster.down();
    rmSync(directory, { recursive: true, force: true });
  }
  if (warmMs) sayTotal({ isShort, startedMs, warmMs, say });
  return counts;
}

/** A function that starts the cluster, with the images, the Secrets and what is beside the pods. */
async function clusterStarter(root, { cluster, backends, releases }) {
  const seed = await makeSeed(root);
  return async () => {
    await cluster.up();
    for (const { archive } of releases) await cluster.load(archive);
    await makeSecrets(cluster, seed);
    await backends.start();
  };
}

function makeProof(cluster, { releases, callersOf, ...others }) {
  const [release, releaseBefore] = releases.map(({ chart, tag, image }) => ({
    chart,
    image,
    values: valuesOf(chart, tag, Object.keys(callersOf)),
  }));
  releaseBefore.values.push(...valuesBefore);
  return new Proof(cluster, { ...release, releaseBefore, callersOf, ...others });
}

async function runStep({ title, ofThisRelease, run }, proof, parts) {
  const beganMs = performance.now();
  if (ofThisRelease) await proof.expectThisRelease();
  const found = await run(proof, parts);
  parts.say(`${title}: passed in ${secondsSince(beganMs)} s${found ? `; ${found}` : ''}`);
}

/** What was compiled and installed before `warmMs` is kept for the next run. */
function sayTotal({ isShort, startedMs, warmMs, say }) {
  const prepared = ((warmMs - startedMs) / 1_000).toFixed(0);
  say(`the run took ${secondsSince(warmMs)} s, after ${prepared} s for what the next one finds compiled`);
  if (!isShort || performance.now() - warmMs <= shortRunMs) return;
  const times = `this machine is ${slowness().toFixed(1)} times as slow as the reference`;
  say(`WARNING: a short run is meant to take ${shortRunMs / 60_000} minutes at most; ${times}`);
}

const secondsSince = (beganMs) => ((performance.now() - beganMs) / 1_000).toFixed(0);

async function findTools(say) {
  const { cacheFolder } = await import('@granary/stack/tools/cache');
  const { prepareMinio } = await import('@granary/stack/minio/server');
  const { prepareChartTools } = await import('@granary/stack/tools/chart-tools');
  const { findBinaries } = await import('@granary/local/postgres/binaries');
  const { callersOf } = await import('@granary/shared/trust/services');
  const cache = await cacheFolder();
  const user = { name: 'nobody', uid: 65534, gid: 65534 };
  const definitions = await prepareChartTools(say);
  return {
    cache,
    callersOf,
    minio: await prepareMinio(say),
    postgres: await findBinaries(user),
    definitions,
    helm: path.join(definitions, 'helm'),
  };
}

/** The folder of the release before; undefined if its sources are missing, and may be. */
async function findReleaseBefore(say) {
  const { prepareReleaseBefore } = await import('@granary/stack/tools/release-before');
  try {
    return await prepareReleaseBefore(say);
  } catch (error) {
    if (process.env.REQUIRE_STACK === '1') throw error;
    say(`UPGRADES ARE TESTED FROM THIS RELEASE ITSELF: ${error.message}`);
    return undefined;
  }
}

/**
 * The chart and the image of this release and of the one before, whose folder is `before`, in this order:
 * `[{chart, tag, image, archive}]`.
 */
async function makeImages(root, before, { directory, say }) {
  const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  const releases = [
    { sources: root, tag: version },
    { sources: before ?? root, tag: 'before' },
  ];
  return Promise.all(
    releases.map(async ({ sources, tag }) => {
      const archive = path.join(directory, `image-${tag}.tar`);
      const image = `registry.local/granary/granary:${tag}`;
      const { digest, bytes } = await buildImage(sources, { output: archive, reference: image });
      say(`image ${tag}: ${digest}, ${(bytes / 1e6).toFixed(0)} MB`);
      return { chart: path.join(sources, 'charts/granary'), tag, image, archive };
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
