import { findPostgresTools, preparePythonTools } from '@granary/stack/tools/python-tools';
import { cpSync, mkdirSync, readdirSync } from 'node:fs';
import path from 'node:path';
import type { Cluster } from '../cluster/cluster';
import { writeToolsImage } from '../images/tools-image';
import type { Proof } from '../proof/proof';
import { scaledSeconds } from '../waiting';
import { agrees } from './agreement';
import type { StepParts } from './step';

const claim = 'granary-backups';
/** The volume of the claim; its files are in a folder of this machine. */
const volume = 'node1-1';
const image = { registry: 'registry.local', repository: 'postgres-tools', tag: '1' };
const jobTimeout = scaledSeconds(120);
const restoreTimeout = scaledSeconds(300);

const backupValues = [
  '--set',
  'backup.enabled=true',
  '--set',
  `backup.existingClaim=${claim}`,
  ...Object.entries(image).flatMap(([name, value]) => ['--set-string', `backup.image.${name}=${value}`]),
];

/** Makes a backup by the CronJob of the chart, and keeps it in `directory`, as storage outside of the cluster would. */
export async function backUp(proof: Proof, { directory, say }: Pick<StepParts, 'directory' | 'say'>): Promise<string> {
  const { cluster } = proof;
  const archive = path.join(directory, 'tools.tar');
  const reference = `${image.registry}/${image.repository}:${image.tag}`;
  const bin = await findPostgresTools(await preparePythonTools(say));
  await writeToolsImage(archive, { reference, bin, directory });
  await cluster.load(archive);
  await claimVolume(cluster);
  await proof.upgrade(...backupValues);
  const stored = await proof.stored();
  await runBackup(cluster);
  const folder = path.join(directory, 'backups');
  cpSync(volumeFolder(cluster), folder, { recursive: true });
  const backups = readdirSync(folder).filter((name) => name.startsWith('backup-'));
  if (backups.length !== 1) throw new Error(`one backup is expected, not ${backups.length}`);
  proof.backup = { archive, folder, stored };
  return `${stored.length} documents`;
}

/**
 * Restores the backup into another cluster, with an empty Postgres, by one command, as the README of the chart says.
 */
export async function restoreElsewhere(
  proof: Proof,
  { root, replaceCluster }: Pick<StepParts, 'root' | 'replaceCluster'>,
): Promise<string> {
  const { cluster, backup } = proof;
  if (backup === undefined) throw new Error('there is no backup: its step did not run');
  await replaceCluster();
  await cluster.load(backup.archive);
  cpSync(backup.folder, volumeFolder(cluster), { recursive: true });
  await claimVolume(cluster);
  await cluster.helm(
    ...['install', 'granary', proof.chart, ...proof.values, ...backupValues],
    ...['--set', 'backup.restore.from=latest', '--wait', '--wait-for-jobs', '--timeout', restoreTimeout],
  );
  await proof.gateway.find();
  const stored = await proof.stored();
  const lost = backup.stored.filter((id) => !new Set(stored).has(id));
  if (lost.length > 0) throw new Error(`${lost.length} documents are lost: ${lost.slice(0, 5).join(', ')}`);
  await proof.compareBlobs();
  if (!(await proof.writes())) throw new Error('nothing can be written');
  return `${stored.length} documents; ${await agrees(proof, { root })}`;
}

const volumeFolder = (cluster: Cluster): string => path.join(cluster.state, 'volumes', volume);

async function claimVolume(cluster: Cluster): Promise<void> {
  mkdirSync(volumeFolder(cluster), { recursive: true });
  await cluster.apply({
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { name: claim },
    spec: {
      accessModes: ['ReadWriteOnce'],
      storageClassName: 'local',
      volumeName: volume,
      resources: { requests: { storage: '1Gi' } },
    },
  });
}

/** Runs the CronJob of the chart now. Throws with its log if it fails. */
async function runBackup(cluster: Cluster): Promise<void> {
  const job = 'granary-backup-now';
  await cluster.kubectl('create', 'job', '--from=cronjob/granary-backup', job);
  await cluster
    .kubectl('wait', '--for=condition=Complete', `job/${job}`, `--timeout=${jobTimeout}`)
    .catch(async (error: Error) => {
      const log = await cluster.kubectl('logs', `job/${job}`).catch(({ message }: Error) => message);
      throw new Error(`${error.message}\n${log}`, { cause: error });
    });
}
