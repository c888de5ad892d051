import { randomBytes } from 'node:crypto';
import { mkdir, readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Client } from 'pg';
import { removalLockKey } from '@granary/blobs/records/removal';
import { ConfigError } from '@granary/shared/config';
import { stopAll } from '@granary/shared/service/lifecycle';
import { version } from '@granary/shared/version';
import { exists } from '@granary/local/postgres/system-user';
import { runningFile } from '@granary/local/processes/running';
import { baseBackup, retainLog } from './base-backup';
import { copyBlobs, missingBytes, type CopiedBlobs } from './blob-copies';
import { appHeads } from './cut-rows';
import { makeCut, type Cut } from './cut';
import { readChunks, syncDirectory, writeHashed } from './hashed-file';
import { writeLines } from './lines';
import { writeManifest, type Manifest, type ManifestFile } from './manifest';
import { openObjects, type ObjectStoreKind } from './objects';
import type { ServeObjects } from '../program/served-objects';
import { inMebibytes, startProgress, type Say } from '../program/progress';
import { beginBackup, completeBackup, explainFull, freeBytes, prepareRepository, type Repository } from './repository';
import { openSource, type Source } from './source';

export interface BackupOptions {
  dataDir: string;
  /** The directory that contains the backups. */
  directory: string;
  withoutSeed: boolean;
  /** Opens the objects of a data directory that keeps them in MinIO. */
  serveObjects?: ServeObjects | undefined;
  say: Say;
  signal: AbortSignal;
}

export interface BackupSummary extends CopiedBlobs {
  name: string;
  apps: number;
  cutAt: Date;
}

const seedFile = 'wallet-seed';
/** Secrets that a backup can be made without: they are kept elsewhere then. */
const seedFiles: readonly string[] = [seedFile, 'encryption-seed'];
/** Files of the data directory that are not backed up, or belong to the running process. */
const leftOut = /^postgres\.log(\.1)?$|^postgres-password\./;
/** Space that must stay free on the target beyond the known need, for log written meanwhile. */
const reserveBytes = 64 * 1024 * 1024;

/**
 * Copies a data directory while it is in use: the Postgres cluster with its five databases, the objects of its blobs,
 * and the files with secrets, all as of one moment, the cut. The backup is renamed to its final name once all of it is
 * on disk. Throws a ConfigError for problems that the user can fix.
 */
export async function makeBackup(options: BackupOptions): Promise<BackupSummary> {
  const { directory, say, signal } = options;
  refuseInside(directory, options.dataDir);
  const stops: Array<() => Promise<void>> = [];
  try {
    const source = await openSource(options.dataDir, say);
    stops.push(() => source.stop());
    const repository = await prepareRepository(directory);
    await refuseTooSmall(source, repository);
    const folder = await beginBackup(directory);
    // A complete backup has been renamed, so this removes only an incomplete one.
    stops.push(() => rm(folder, { recursive: true, force: true }));
    say(`Backing up ${source.dataDir} to ${directory} …`);
    const summary = await fill({ ...options, source, repository, folder, startedAt: new Date() }, stops);
    signal.throwIfAborted();
    return summary;
  } catch (error) {
    throw explainFull(error, directory);
  } finally {
    await stopAll(stops);
  }
}

interface Filling extends BackupOptions {
  source: Source;
  repository: Repository;
  /** The folder of this backup. */
  folder: string;
  startedAt: Date;
}

/** Fills the folder of a backup, part by part, and renames it. `stops` receives the clean-up actions. */
async function fill(filling: Filling, stops: Array<() => Promise<void>>): Promise<BackupSummary> {
  const { source, repository, folder, startedAt, say, signal } = filling;
  // From before the cut until everything is copied, deleted objects keep their bytes.
  const holder = await pauseObjectRemoval(source);
  stops.push(() => holder.end());
  const replication = await source.connectForReplication();
  stops.push(() => replication.end());
  await retainLog(replication);
  const cluster = await copyCluster(filling, replication);
  const cut = await makeCut({
    connect: (database) => source.connect(database),
    fromLsn: cluster.startLsn,
    signal,
    restorePoint: `granary-${randomBytes(8).toString('hex')}`,
  });
  stops.push(async () => void (await Promise.all([cut.data.end(), cut.blobs.end()])));
  const log = await copyLog(filling, cut);
  const secrets = await copySecrets(filling);
  const heads = await writeLines(path.join(folder, 'apps.ndjson'), appHeads(cut.data));
  const kind = await objectStoreKind(source.dataDir);
  const { serveObjects } = filling;
  const objects = await openObjects(kind, { dataDir: source.dataDir, serveObjects, say, signal });
  const blobs = await copyBlobs({ blobs: cut.blobs, objects, repository, folder, say, signal }).finally(() =>
    objects.close(),
  );
  // Fails if the connection broke, which would have released the lock.
  await holder.query('select 1');
  const manifest: Manifest = {
    format: 1,
    granary: version,
    objectStore: kind,
    startedAt: startedAt.toISOString(),
    postgres: await describeCluster(cut.data),
    cut: { at: cut.at.toISOString(), restorePoint: cut.restorePoint, lsn: cut.lsn },
    hasSeed: secrets.some((file) => file.path === `files/${seedFile}`),
    apps: heads.lines,
    blobs: { contents: blobs.contents, sizeBytes: blobs.sizeBytes },
    files: [cluster.file, ...log, ...secrets, heads.file, blobs.file],
  };
  signal.throwIfAborted();
  await writeManifest(folder, manifest);
  const name = await completeBackup(repository.directory, folder, startedAt);
  return { ...blobs, name, apps: heads.lines, cutAt: cut.at };
}

async function copyCluster(
  { source, folder, say, signal }: Filling,
  replication: Client,
): Promise<{ file: ManifestFile; startLsn: string }> {
  const totalBytes = await clusterBytes(source);
  const progress = startProgress(
    say,
    (done) => `  databases: ${inMebibytes(done)} of about ${inMebibytes(totalBytes)}`,
  );
  const { archive, startLsn } = baseBackup(replication, 'granary');
  const sum = await writeHashed(path.join(folder, 'postgres.tar'), archive, (count) => progress.add(count), signal);
  say(`  databases: ${inMebibytes(sum.sizeBytes)}`);
  return { file: { path: 'postgres.tar', ...sum }, startLsn: startLsn() };
}

/** Copies the part of the log from the base backup to the cut. */
async function copyLog({ source, folder, say, signal }: Filling, { logFiles }: Cut): Promise<ManifestFile[]> {
  await mkdir(path.join(folder, 'wal'), { mode: 0o700 });
  const files: ManifestFile[] = [];
  for (const name of logFiles) {
    const from = path.join(source.dataDir, 'postgres', 'pg_wal', name);
    const sum = await writeHashed(path.join(folder, 'wal', name), readChunks(from), undefined, signal);
    files.push({ path: `wal/${name}`, ...sum });
  }
  await syncDirectory(path.join(folder, 'wal'));
  say(`  log: ${inMebibytes(files.reduce((total, { sizeBytes }) => total + sizeBytes, 0))}`);
  return files;
}

/** Copies the files of the data directory itself: passwords, keys and, unless excluded, the seeds. */
async function copySecrets({ source, folder, withoutSeed, signal }: Filling): Promise<ManifestFile[]> {
  await mkdir(path.join(folder, 'files'), { mode: 0o700 });
  const files: ManifestFile[] = [];
  for (const entry of await readdir(source.dataDir, { withFileTypes: true })) {
    const { name } = entry;
    if (!entry.isFile() || leftOut.test(name) || name === runningFile) continue;
    if (withoutSeed && seedFiles.includes(name)) continue;
    const sum = await writeHashed(
      path.join(folder, 'files', name),
      readChunks(path.join(source.dataDir, name)),
      undefined,
      signal,
    );
    files.push({ path: `files/${name}`, ...sum });
  }
  await syncDirectory(path.join(folder, 'files'));
  return files;
}

/** Takes the lock that keeps the bytes of deleted blobs; waits for removals in progress. */
async function pauseObjectRemoval(source: Source): Promise<Client> {
  const holder = await source.connect('granary_blobs');
  try {
    await holder.query(`set lock_timeout = '60s'`);
    await holder.query('select pg_advisory_lock($1::bigint)', [removalLockKey]);
    return holder;
  } catch (error) {
    await holder.end();
    throw new ConfigError(
      'The removal of objects could not be paused: another backup of the same data may be under way.',
      {
        cause: error,
      },
    );
  }
}

export async function objectStoreKind(dataDir: string): Promise<ObjectStoreKind> {
  return (await exists(path.join(dataDir, 'minio'))) ? 'minio' : 'files';
}

async function describeCluster(client: Client): Promise<Manifest['postgres']> {
  const { rows } = await client.query<Manifest['postgres']>(
    `select current_setting('server_version') as version, system_identifier::text as "systemIdentifier",
       (select timeline_id from pg_control_checkpoint()) as timeline
     from pg_control_system()`,
  );
  return rows[0]!;
}

async function clusterBytes(source: Source): Promise<number> {
  const client = await source.connect('postgres');
  try {
    const { rows } = await client.query<{ bytes: string }>(
      'select sum(pg_database_size(oid))::text as bytes from pg_database',
    );
    return Number(rows[0]!.bytes);
  } finally {
    await client.end();
  }
}

/** Refuses a target without space for the data of now. */
async function refuseTooSmall(source: Source, repository: Repository): Promise<void> {
  const blobs = await source.connect('granary_blobs');
  const neededBytes =
    reserveBytes + (await clusterBytes(source)) + (await missingBytes(blobs, repository).finally(() => blobs.end()));
  const free = await freeBytes(repository.directory);
  if (free >= neededBytes) return;
  throw new ConfigError(
    `${repository.directory} is too small: the backup needs about ${inMebibytes(neededBytes)} and ${inMebibytes(free)} are free.`,
  );
}

function refuseInside(directory: string, dataDir: string): void {
  const relative = path.relative(dataDir, directory);
  if (relative !== '' && (relative.startsWith('..') || path.isAbsolute(relative))) return;
  throw new ConfigError(`${directory} is inside the data directory: keep backups elsewhere, on another disk.`);
}
