import path from 'node:path';
import { readConfig } from '@granary/shared/config';
import { resolveDataDir } from '../postgres/data-dir';
import { runCommand } from './command';
import { restoreConfig } from './config';
import { readManifest } from './manifest';
import { inMebibytes } from './progress';
import { findBackup } from './repository';
import { restoreBackup } from './restore';

void runCommand('The restore', async (say, signal) => {
  const config = readConfig(restoreConfig, process.env);
  const directory = path.resolve(config.BACKUP_DIR);
  const { objectStore } = await readManifest((await findBackup(directory)).folder);
  const isStack = objectStore === 'minio';
  const { dataDir, note } = await resolveDataDir({
    explicit: config.DATA_DIR,
    defaultDir: isStack ? '.granary-stack' : '.granary',
  });
  if (note !== undefined) say(note);
  const done = await restoreBackup({ directory, dataDir, replace: config.RESTORE_REPLACE, say, signal });
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
});
