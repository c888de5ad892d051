import { findBinaries, type Binaries } from '@granary/local/postgres/binaries';
import { callersOf } from '@granary/shared/trust/services';
import { prepareMinio } from '@granary/stack/minio/server';
import { cacheFolder } from '@granary/stack/tools/cache';
import { prepareChartTools } from '@granary/stack/tools/chart-tools';
import { slowness } from '@granary/testing/speed';
import { rmSync } from 'node:fs';
import path from 'node:path';
import { Backends, secrets } from './backends/backends';
import { runChild } from './child';
import { Cluster, lastLines, namespace } from './cluster/cluster';
import { makeDirectory } from './cluster/directory';
import type { Counts } from './counts';
import { Proof } from './proof/proof';
import { buildReleases, findReleaseBefore, type Releases } from './releases';
import type { Say } from './say';
import type { Step, StepParts } from './steps/step';
import { chooseSteps, nodes, type Choice } from './steps/steps';
import { withinLimit } from './waiting';

/** The number of lines of a failure's message that the summary of all tests shows. */
const linesShown = 15;
/** The limit of a short run on the reference machine, once everything is compiled. */
const shortRunMs = 240_000;

export interface RunOptions extends Choice {
  say: Say;
  /** Ends the run when it is aborted; the step that is running has then failed. */
  signal: AbortSignal;
}

/**
 * Proves the image and the chart of this built checkout in a cluster, which it makes and removes. The first step that
 * fails is the last.
 */
export async function proveInCluster(root: string, { say, signal, ...choice }: RunOptions): Promise<Counts> {
  const { isShort } = choice;
  const counts: Counts = { passed: 0, failed: 0 };
  let current = 'a cluster with the image';
  const startedMs = performance.now();
  let warmMs: number | undefined;
  const { cache, definitions, helm, minio, postgres } = await findTools(say);
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
    const releases = await buildReleases(root, before, { components: Object.keys(callersOf), directory, say });
    say('starting Kubernetes');
    const startCluster = await clusterStarter(root, { cluster, backends, releases });
    const replaceCluster = async (): Promise<void> => {
      await backends.stop();
      await cluster.down();
      await startCluster();
    };
    await startCluster();
    const { release, releaseBefore } = releases;
    const proof = new Proof(cluster, { ...release, callersOf, backends });
    const requestsMin = isShort ? 500 : 5_000;
    const parts = { root, directory, definitions, releaseBefore, requestsMin, backends, replaceCluster, say };
    counts.passed += 1;
    for (const step of chooseSteps(choice)) {
      current = step.title;
      await withinLimit(signal, () => runStep(step, proof, parts));
      counts.passed += 1;
    }
  } catch (error) {
    counts.failed += 1;
    const { message } = (signal.aborted ? signal.reason : error) as Error;
    counts.failure = `${current}: ${lastLines(message, linesShown)}`;
    say(`${current}: FAILED\n${message}\n${await cluster.describe()}`);
  } finally {
    await backends.stop();
    await cluster.down();
    rmSync(directory, { recursive: true, force: true });
  }
  if (warmMs !== undefined) sayTotal({ isShort, startedMs, warmMs, say });
  return counts;
}

interface StartedParts {
  cluster: Cluster;
  backends: Backends;
  releases: Releases;
}

/** Returns a function that starts the cluster, with the images, the Secrets and the backends beside the pods. */
async function clusterStarter(
  root: string,
  { cluster, backends, releases: { release, releaseBefore } }: StartedParts,
): Promise<() => Promise<void>> {
  const seed = await makeSeed(root);
  return async () => {
    await cluster.up();
    for (const { archive } of [release, releaseBefore]) await cluster.load(archive);
    await makeSecrets(cluster, seed);
    await backends.start();
  };
}

async function runStep({ title, ofThisRelease, run }: Step, proof: Proof, parts: StepParts): Promise<void> {
  const beganMs = performance.now();
  if (ofThisRelease) await proof.expectThisRelease();
  const measured = await run(proof, parts);
  parts.say(`${title}: passed in ${secondsSince(beganMs)} s${measured ? `; ${measured}` : ''}`);
}

interface Times {
  isShort: boolean;
  startedMs: number;
  /** The time at which everything was compiled and installed that is kept for the next run. */
  warmMs: number;
  say: Say;
}

function sayTotal({ isShort, startedMs, warmMs, say }: Times): void {
  const prepared = ((warmMs - startedMs) / 1_000).toFixed(0);
  say(`the run took ${secondsSince(warmMs)} s, after ${prepared} s for what the next one finds compiled`);
  if (!isShort || performance.now() - warmMs <= shortRunMs) return;
  const times = `this machine is ${slowness().toFixed(1)} times as slow as the reference`;
  say(`WARNING: a short run is meant to take ${shortRunMs / 60_000} minutes at most; ${times}`);
}

const secondsSince = (beganMs: number): string => ((performance.now() - beganMs) / 1_000).toFixed(0);

interface Tools {
  /** The folder for what is kept between runs. */
  cache: string;
  /** The folder with the CRDs of others that resources of the chart need. */
  definitions: string;
  helm: string;
  minio: string;
  postgres: Binaries;
}

async function findTools(say: Say): Promise<Tools> {
  const cache = await cacheFolder();
  const user = { name: 'nobody', uid: 65534, gid: 65534 };
  const definitions = await prepareChartTools(say);
  return {
    cache,
    minio: await prepareMinio(say),
    postgres: await findBinaries(user),
    definitions,
    helm: path.join(definitions, 'helm'),
  };
}

async function makeSeed(root: string): Promise<string> {
  const command = [path.join(root, 'services/finance/dist/main.js'), 'seed'];
  return (await runChild(process.execPath, command, { env: { PATH: process.env.PATH } })).output;
}

/** Creates the namespace and its Secrets, as the README of the chart does. */
async function makeSecrets(cluster: Cluster, seed: string): Promise<void> {
  await cluster.kubectl('create', 'namespace', namespace);
  await cluster.kubectl('label', 'namespace', namespace, 'pod-security.kubernetes.io/enforce=restricted');
  for (const [name, members] of Object.entries(secrets(seed))) {
    const literals = Object.entries(members).map(([key, value]) => `--from-literal=${key}=${value}`);
    await cluster.kubectl('create', 'secret', 'generic', name, ...literals);
  }
}
