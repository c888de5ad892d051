import path from 'node:path';
import { readConfig } from '@granary/shared/config';
import { makeBackup } from './backup';
import { runCommand } from './command';
import { backupConfig } from './config';
import { chooseDataDir } from './source';

void runCommand('The backup', async (say, signal) => {
  const config = readConfig(backupConfig, process.env);
  const directory = path.resolve(config.BACKUP_DIR);
  const dataDir = await chooseDataDir(config.DATA_DIR);
  const done = await makeBackup({ dataDir, directory, withoutSeed: config.BACKUP_WITHOUT_SEED, say, signal });
  say(`${path.join(directory, done.name)} is complete.`);
  say(
    `  cut: ${done.cutAt.toISOString()}, ${done.apps} apps, ${done.contents} blobs (${done.copied} of them copied now)`,
  );
  if (config.BACKUP_WITHOUT_SEED) say('  wallet-seed is not in it: without a copy of it the backup is of no use.');
  else say('  It holds wallet-seed and the operator key: whoever can read it can spend what the wallets have.');
});
