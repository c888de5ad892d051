import { randomBytes } from 'node:crypto';
import { chmod, copyFile, mkdir, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { Client } from 'pg';
import { forEachConcurrently } from '@granary/shared/concurrency/for-each';
import { ConfigError } from '@granary/shared/config';
import { stopAll } from '@granary/shared/service/lifecycle';
import { openCluster } from '@granary/local/postgres/cluster';
import { openDataDir } from '@granary/local/postgres/data-dir';
import type { EmbeddedPostgres } from '@granary/local/postgres/postgres';
import { exists, findPostgresUser } from '@granary/local/postgres/system-user';
import { identify, isAbandoned } from '@granary/local/processes/processes';
import { listedBlobs } from './blob-copies';
import { usedObjects, type AppHead, type ObjectRow } from './cut-rows';
import { hashFile, readChunks, syncDirectory, type FileSum } from './hashed-file';
import { readLines } from './lines';
import { readManifest, type Manifest } from './manifest';
import { openObjects } from './objects';
import type { ServeObjects } from '../program/served-objects';
import { inMebibytes, startProgress, type Say } from '../program/progress';
import { recoverCluster } from './recovery';
import { explainFull, findBackup, freeBytes, type Repository } from './repository';
import { quiet, runningPort } from './source';
import { verifyChains, type CheckedChains } from './verify-chains';

export interface RestoreOptions {
  /** One backup, or a directory of backups, of which the newest is restored. */
  directory: string;
  dataDir: string;
  /** Whether a data directory that is not empty may be replaced; its contents are moved aside. */
  replace: boolean;
  /** Opens the objects of a data directory that keeps them in MinIO. */
  serveObjects?: ServeObjects | undefined;
  say: Say;
  signal: AbortSignal;
}

export interface RestoreSummary extends CheckedChains {
  backup: string;
  dataDir: string;
  cutAt: string;
  blobs: number;
  blobBytes: number;
  hasSeed: boolean;
  /** The folder to which the previous contents of the data directory were moved. */
  movedTo?: string;
}

const stagingPrefix = '.restoring-';
const foreignMs = 7 * 86_400_000;
const reserveBytes = 64 * 1024 * 1024;
const writesAtOnce = 8;
/** Consumers whose offsets refer to a Kafka broker, which is not restored. */
const consumerDatabases = ['granary_blobs', 'granary_finance', 'granary_tasks'];

/**
 * Restores a backup to a data directory: checks all files, recovers the cluster to the cut, recomputes the hash chain
 * of every app, and writes and checks the bytes of every blob. All of this happens in a staging folder beside the data
 * directory, which is moved into place at the end. Throws a ConfigError that names the first difference.
 */
export async function restoreBackup(options: RestoreOptions): Promise<RestoreSummary> {
  const { serveObjects, say, signal } = options;
  const { folder, repository } = await findBackup(options.directory);
  const manifest = await readManifest(folder);
  say(`Restoring ${folder} (cut at ${manifest.cut.at}) to ${options.dataDir} …`);
  const dataDir = await prepareDataDir(options);
  const stops: Array<() => Promise<void>> = [];
  try {
    await refuseTooSmall(manifest, dataDir);
    await verifyFiles(folder, manifest, say, signal);
    const staging = path.join(
      dataDir,
      `${stagingPrefix}${identify(process.pid) ?? '0-gone'}.${randomBytes(4).toString('hex')}`,
    );
    stops.push(() => rm(staging, { recursive: true, force: true }));
    await mkdir(staging, { mode: 0o700 });
    await openDataDir(staging, await findPostgresUser(staging));
    const restored = await restoreInto(staging, { folder, repository, manifest, serveObjects, say, signal });
    signal.throwIfAborted();
    const movedTo = await moveIntoPlace(staging, dataDir, options.replace);
    const { cut, hasSeed } = manifest;
    return {
      backup: path.basename(folder),
      dataDir,
      cutAt: cut.at,
      hasSeed,
      ...restored,
      ...(movedTo !== undefined && { movedTo }),
    };
  } catch (error) {
    throw explainFull(error, dataDir);
  } finally {
    await stopAll(stops);
  }
}

interface Restoring {
  folder: string;
  repository: Repository;
  manifest: Manifest;
  serveObjects: ServeObjects | undefined;
  say: Say;
  signal: AbortSignal;
}

type Restored = CheckedChains & { blobs: number; blobBytes: number };

async function restoreInto(staging: string, restoring: Restoring): Promise<Restored> {
  const { folder, manifest, say, signal } = restoring;
  for (const { path: file } of manifest.files) {
    if (!file.startsWith('files/')) continue;
    const to = path.join(staging, path.basename(file));
    await copyFile(path.join(folder, file), to);
    // Copying the backup may have dropped the directory.
    await chmod(to, 0o600);
  }
  say('  recovering the databases to the cut …');
  const postgres = await recoverCluster(folder, manifest, staging, say);
  try {
    signal.throwIfAborted();
    const heads = readLines<AppHead>(path.join(folder, 'apps.ndjson'));
    const chains = await withClient(postgres, 'granary_data', (data) => verifyChains(data, heads, say));
    say(`  hash chains: ${chains.links} links of ${chains.apps} apps verified`);
    const blobs = await withClient(postgres, 'granary_blobs', (client) => writeBlobs(staging, client, restoring));
    say(`  blobs: ${blobs.blobs} verified (${inMebibytes(blobs.blobBytes)})`);
    for (const database of consumerDatabases) {
      await withClient(postgres, database, (client) => client.query('delete from bus_offset'));
    }
    // A checkpoint, so that the stop has little to write.
    await withClient(postgres, 'postgres', (client) => client.query('checkpoint'));
    return { ...chains, ...blobs };
  } finally {
    await postgres.stop();
  }
}

/** Writes every object used by a blob, and checks its bytes. */
async function writeBlobs(
  staging: string,
  blobs: Client,
  { folder, repository, manifest, serveObjects, say, signal }: Restoring,
): Promise<{ blobs: number; blobBytes: number }> {
  const listed = new Set<string>();
  for await (const { sha256 } of listedBlobs(folder)) listed.add(sha256);
  if (listed.size !== manifest.blobs.contents) throw new ConfigError('The list of blobs has the wrong length.');
  const objects = await openObjects(manifest.objectStore, { dataDir: staging, serveObjects, say, signal });
  const written = { blobs: 0, blobBytes: 0 };
  const progress = startProgress(
    say,
    (done) => `  blobs: ${inMebibytes(done)} of ${inMebibytes(manifest.blobs.sizeBytes)}`,
  );
  const write = async ({ key, appId, isStored, sha256, sizeBytes }: ObjectRow): Promise<void> => {
    signal.throwIfAborted();
    const file = repository.blobFile(sha256);
    if (!listed.has(sha256)) {
      // An uncommitted upload may have no bytes.
      if (!isStored) return;
      throw new ConfigError(`The blob ${sha256} of the app ${appId} is not in the backup.`);
    }
    const sum = await objects.write(key, readChunks(file), signal).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') throw new ConfigError(`${file} is missing.`, { cause: error });
      throw error;
    });
    refuseDifferent(file, sum, { sha256, sizeBytes });
    written.blobs++;
    written.blobBytes += sizeBytes;
    progress.add(sizeBytes);
  };
  try {
    await forEachConcurrently(writesAtOnce, usedObjects(blobs), write);
  } finally {
    await objects.close();
  }
  return written;
}

async function verifyFiles(folder: string, { files }: Manifest, say: Say, signal: AbortSignal): Promise<void> {
  const totalBytes = files.reduce((total, { sizeBytes }) => total + sizeBytes, 0);
  const progress = startProgress(say, (done) => `  files: ${inMebibytes(done)} of ${inMebibytes(totalBytes)} checked`);
  for (const { path: name, ...expected } of files) {
    signal.throwIfAborted();
    const file = path.join(folder, name);
    const sum = await hashFile(file, (count) => progress.add(count)).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') throw new ConfigError(`${file} is missing.`, { cause: error });
      throw error;
    });
    refuseDifferent(file, sum, expected);
  }
  say(`  files: ${files.length} verified (${inMebibytes(totalBytes)})`);
}

function refuseDifferent(file: string, actual: FileSum, expected: FileSum): void {
  if (actual.sizeBytes !== expected.sizeBytes) {
    throw new ConfigError(`${file} is damaged: it has ${actual.sizeBytes} bytes instead of ${expected.sizeBytes}.`);
  }
  if (actual.sha256 !== expected.sha256) throw new ConfigError(`${file} is damaged: its SHA-256 differs.`);
}

/** Creates the data directory if needed. Throws a ConfigError if it is in use, or not empty and not to be replaced. */
async function prepareDataDir({ dataDir, replace, say }: RestoreOptions): Promise<string> {
  const home = await openDataDir(dataDir, await findPostgresUser(dataDir));
  if (await exists(path.join(home, 'postgres', 'PG_VERSION'))) {
    if ((await runningPort(await openCluster(home, quiet(say)))) !== undefined) {
      throw new ConfigError(`Granary is running on ${home}: stop it first, or restore to another directory.`);
    }
  }
  for (const name of await readdir(home)) {
    if (!name.startsWith(stagingPrefix)) continue;
    const owner = name.slice(stagingPrefix.length).split('.')[0] ?? '';
    const folder = path.join(home, name);
    if (await isAbandoned(owner, folder, foreignMs)) await rm(folder, { recursive: true, force: true });
  }
  if (!replace && (await readdir(home)).length > 0) {
    throw new ConfigError(
      `${home} is not empty: restore to another directory, or add --replace to move its contents aside.`,
    );
  }
  return home;
}

/**
 * Moves the restored data into the data directory, the cluster last: without one the directory is not a valid data
 * directory.
 */
async function moveIntoPlace(staging: string, dataDir: string, replace: boolean): Promise<string | undefined> {
  const inTheWay = (await readdir(dataDir)).filter((name) => !name.startsWith(stagingPrefix));
  let movedTo: string | undefined;
  if (inTheWay.length > 0) {
    if (!replace) throw new ConfigError(`${dataDir} is no longer empty.`);
    movedTo = path.join(dataDir, `before-restore-${new Date().toISOString().slice(0, 19).replaceAll(':', '-')}Z`);
    await mkdir(movedTo, { mode: 0o700 });
    for (const name of inTheWay) {
      if (!name.startsWith('before-restore-')) await rename(path.join(dataDir, name), path.join(movedTo, name));
    }
  }
  const names = (await readdir(staging)).filter((name) => !name.startsWith('postgres.log'));
  for (const name of [...names.filter((each) => each !== 'postgres'), 'postgres']) {
    await rename(path.join(staging, name), path.join(dataDir, name));
  }
  await syncDirectory(dataDir);
  return movedTo;
}

async function refuseTooSmall({ files, blobs }: Manifest, dataDir: string): Promise<void> {
  const neededBytes = files.reduce((total, { sizeBytes }) => total + sizeBytes, blobs.sizeBytes + reserveBytes);
  const free = await freeBytes(dataDir);
  if (free >= neededBytes) return;
  throw new ConfigError(
    `${dataDir} is too small: about ${inMebibytes(neededBytes)} are needed and ${inMebibytes(free)} are free.`,
  );
}

async function withClient<T>(
  postgres: EmbeddedPostgres,
  database: string,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  const client = new Client({ connectionString: postgres.url(database) });
  client.on('error', () => {});
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
