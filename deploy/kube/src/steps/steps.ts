import { prepareHelm3, prepareMetricsServer, prepareTraefik } from '@granary/stack/tools/cluster-tools';
import { agrees } from './agreement';
import { autoscale, startMetricsServer } from './autoscaling';
import { backUp, restoreElsewhere } from './backup';
import { failMigration } from './broken-migration';
import { failOver } from './failover';
import { proveInPods } from './in-pods';
import { demoThroughIngress } from './ingress';
import { provePolicies } from './policies';
import type { Step } from './step';
import { applyValuesFiles, removeDefinitions } from './values-files';

/** The number of nodes of the full run. */
export const nodes = 2;
const podKills = 12;
/** The revision that Helm gives to the install of the release before. */
const installRevision = '1';
/**
 * The kinds of clients whose requests the release before fails while pods are replaced: its gateways wait up to 30 s
 * for pods of blobs that are gone. A release before without that fault needs no exception.
 */
const failedBefore = ['blob'];

/**
 * The steps of the proof, in order. The short run takes the steps that are `isShort`; the first ones are always needed.
 * A step that is `ofThisRelease` begins only if this release is running.
 */
const steps: readonly Step[] = [
  {
    title: 'install of the release before',
    isShort: true,
    run: (proof, { releaseBefore }) => proof.install(releaseBefore),
  },
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
    run: async (proof, parts) => demoThroughIngress(proof, { ...parts, traefik: await prepareTraefik(parts.say) }),
  },
  {
    title: 'an upgrade whose migration fails',
    isShort: true,
    ofThisRelease: true,
    run: (proof) => proof.beside({ upgrade: () => failMigration(proof) }),
  },
  {
    title: 'rollback to the release before, and upgrade',
    isShort: true,
    ofThisRelease: true,
    run: (proof, { requestsMin }) => {
      const changes = { rollback: () => proof.rollback(installRevision), upgrade: () => proof.upgrade() };
      return proof.beside(changes, { requestsMin, without: failedBefore });
    },
  },
  {
    title: 'autoscaling',
    ofThisRelease: true,
    run: async (proof, { directory, say }) => {
      await startMetricsServer(proof.cluster, { directory, program: await prepareMetricsServer(say) });
      return autoscale(proof);
    },
  },
  {
    title: 'drain of a node',
    ofThisRelease: true,
    run: (proof, { requestsMin }) => {
      // The nodes are drained in turn: the pods of a drained node stay on the other one.
      const changes = { drain: (round: number) => proof.drain(`node${nodes - (round % nodes)}`) };
      return proof.beside(changes, { requestsMin });
    },
  },
  {
    title: `${podKills} pods killed`,
    ofThisRelease: true,
    run: (proof) => proof.beside({ kills: () => proof.kills(podKills) }, { mayFail: true }),
  },
  { title: 'failovers of Postgres', ofThisRelease: true, run: failOver },
  { title: 'nothing acknowledged is lost', isShort: true, ofThisRelease: true, run: (proof) => proof.nothingLost() },
  { title: 'chain, ledger and events agree', isShort: true, ofThisRelease: true, run: agrees },
  { title: 'backup', ofThisRelease: true, run: backUp },
  { title: 'uninstall', isShort: true, run: (proof) => proof.uninstall() },
  {
    title: 'install of this release into empty databases',
    isShort: true,
    run: (proof, { backends }) => proof.anew(backends),
  },
  {
    title: 'values files on the server',
    isShort: true,
    run: async (proof, parts) => {
      const files = await applyValuesFiles(proof, parts);
      await removeDefinitions(proof.cluster, parts.definitions);
      return files;
    },
  },
  {
    title: 'Helm 3',
    run: async (proof, { backends, say }) => proof.withHelm(await prepareHelm3(say), backends),
  },
  { title: 'restore into another cluster', run: restoreElsewhere },
  { title: 'Postgres, Kafka and MinIO in pods that are killed', run: proveInPods },
];

const neededSteps = 2;

/** The choice of the steps to run. */
export interface Choice {
  isShort: boolean;
  /** Limits the full run to the needed steps, and to those whose titles contain one of these texts. */
  only?: readonly string[] | undefined;
}

export function chooseSteps({ isShort, only }: Choice): readonly Step[] {
  if (isShort) return steps.filter((step) => step.isShort);
  return steps.filter(({ title }, index) => index < neededSteps || !only || only.some((text) => title.includes(text)));
}
