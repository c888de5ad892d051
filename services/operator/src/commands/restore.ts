import path from 'node:path';
import { resolveDataDir } from '@granary/local/postgres/data-dir';
import { readConfig } from '@granary/shared/config';
import { restoreConfig } from '../backup/config';
import { readManifest } from '../backup/manifest';
import { findBackup } from '../backup/repository';
import { restoreBackup } from '../backup/restore';
import { defineCommand } from '../program/command';
import { inMebibytes } from '../program/progress';

const usage = `Restores a backup to a data directory, and verifies all of it.

  npm run restore -- <directory> [--data-dir <path>] [--replace]

  <directory>         a backup, or a directory of backups, of which the newest is restored   (BACKUP_DIR)
  --data-dir <path>   an empty or new directory                                              (DATA_DIR)
  --replace           allows a directory with data of a stopped Granary; the data is moved aside
  -h, --help          prints this text`;

export const restore = defineCommand({
  title: 'The restore',
  endsInOrder: true,
  usage,
  options: { 'data-dir': { type: 'string' }, replace: { type: 'boolean' } },
  settings: { 'data-dir': 'DATA_DIR', replace: 'RESTORE_REPLACE' },
  positionalsMax: 1,
  positionalSetting: 'BACKUP_DIR',
  run: async (_values, _positionals, { environment, directory: here, say, signal, serveObjects }) => {
    const config = readConfig(restoreConfig, environment);
    const directory = path.resolve(here, config.BACKUP_DIR);
    const { objectStore } = await readManifest((await findBackup(directory)).folder);
    const isStack = objectStore === 'minio';
    const { dataDir, note } = await resolveDataDir({
      explicit: config.DATA_DIR && path.resolve(here, config.DATA_DIR),
      defaultDir: isStack ? '.granary-stack' : '.granary',
    });
    if (note !== undefined) say(note);
    const replace = config.RESTORE_REPLACE;
    const done = await restoreBackup({ directory, dataDir, replace, serveObjects, say, signal });
    say(`${done.backup} is restored to ${done.dataDir}.`);
    say(
      `  cut: ${done.cutAt}, ${done.apps} apps with ${done.links} links, ${done.blobs} blobs with ${inMebibytes(done.blobBytes)}`,
    );
    if (done.movedTo !== undefined) say(`  The previous contents are in ${done.movedTo}.`);
    if (!done.hasSeed)
      say(
        `  The backup has no seeds: put wallet-seed and encryption-seed in ${done.dataDir} before the start, with mode 600.`,
      );
    say(`  Start it with: npm ${isStack ? 'run stack' : 'start'} -- --data-dir ${done.dataDir}`);
  },
});
