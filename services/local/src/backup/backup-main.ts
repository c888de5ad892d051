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
  if (config.BACKUP_WITHOUT_SEED)
    say('  It does not contain wallet-seed and encryption-seed: without copies of them the backup is useless.');
  else
    say(
      '  It contains the seeds and the operator key: anyone who can read it can spend the money in the wallets, and ' +
        'read encrypted fields.',
    );
});
