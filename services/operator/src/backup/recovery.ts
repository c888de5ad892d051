import { chown, copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import * as tar from 'tar';
import { ConfigError } from '@granary/shared/config';
import { openDataDir } from '@granary/local/postgres/data-dir';
import { startPostgres, type EmbeddedPostgres } from '@granary/local/postgres/postgres';
import { findPostgresUser, type SystemUser } from '@granary/local/postgres/system-user';
import type { Manifest } from './manifest';
import type { Say } from '../program/progress';
import { quiet } from './source';

const logFolder = 'wal/';

/**
 * Unpacks the cluster of a backup into a data directory that already contains the password files, starts it and replays
 * its log up to the cut. Recovery begins a new timeline, by which the outboxes detect a new epoch.
 */
export async function recoverCluster(
  folder: string,
  manifest: Manifest,
  dataDir: string,
  say: Say,
): Promise<EmbeddedPostgres> {
  const user = await findPostgresUser(dataDir);
  const directory = path.join(await openDataDir(dataDir, user), 'postgres');
  await mkdir(directory, { mode: 0o700 });
  await give(directory, user);
  await tar.extract({
    file: path.join(folder, 'postgres.tar'),
    cwd: directory,
    strict: true,
    ...(user && { uid: user.uid, gid: user.gid }),
  });
  for (const { path: file } of manifest.files) {
    if (!file.startsWith(logFolder)) continue;
    const to = path.join(directory, 'pg_wal', file.slice(logFolder.length));
    await copyFile(path.join(folder, file), to);
    await give(to, user);
  }
  return replay(directory, dataDir, manifest, user, say);
}

async function replay(
  directory: string,
  dataDir: string,
  { cut }: Manifest,
  user: SystemUser | undefined,
  say: Say,
): Promise<EmbeddedPostgres> {
  const settingsFile = path.join(directory, 'postgresql.auto.conf');
  const settings = await readFile(settingsFile, 'utf8');
  const recovery = [
    // All required log files are in pg_wal.
    `restore_command = 'false'`,
    `recovery_target_name = '${cut.restorePoint}'`,
    `recovery_target_action = 'promote'`,
    // No connections before the cut is reached.
    `hot_standby = 'off'`,
  ];
  await writeFile(settingsFile, `${settings}\n${recovery.join('\n')}\n`);
  const signalFile = path.join(directory, 'recovery.signal');
  await writeFile(signalFile, '', { mode: 0o600 });
  await give(signalFile, user);
  try {
    const postgres = await startPostgres({ dataDir, log: quiet(say) });
    await writeFile(settingsFile, settings);
    return postgres;
  } catch (error) {
    throw new ConfigError(`The cluster cannot be recovered to the cut: ${(error as Error).message}`, { cause: error });
  }
}

async function give(file: string, user: SystemUser | undefined): Promise<void> {
  if (user) await chown(file, user.uid, user.gid);
}
