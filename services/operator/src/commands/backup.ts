import path from 'node:path';
import { readConfig } from '@granary/shared/config';
import { makeBackup } from '../backup/backup';
import { backupConfig } from '../backup/config';
import { chooseDataDir } from '../backup/source';
import { defineCommand } from '../program/command';

const usage = `Backs up all data of a Granary, running or not, to a directory of backups.

  npm run backup -- <directory> [--data-dir <path>] [--without-seed]

  <directory>         the directory of backups; blobs that it already contains are not copied    (BACKUP_DIR)
  --data-dir <path>   default: the data directory of npm start or npm run stack                 (DATA_DIR)
  --without-seed      excludes the seeds of wallets and of encrypted fields;
                      keep copies of them elsewhere
  -h, --help          prints this text`;

export const backup = defineCommand({
  title: 'The backup',
  endsInOrder: true,
  usage,
  options: { 'data-dir': { type: 'string' }, 'without-seed': { type: 'boolean' } },
  settings: { 'data-dir': 'DATA_DIR', 'without-seed': 'BACKUP_WITHOUT_SEED' },
  positionalsMax: 1,
  positionalSetting: 'BACKUP_DIR',
  run: async (_values, _positionals, { environment, directory: here, say, signal, serveObjects }) => {
    const config = readConfig(backupConfig, environment);
    const directory = path.resolve(here, config.BACKUP_DIR);
    const dataDir = await chooseDataDir(config.DATA_DIR && path.resolve(here, config.DATA_DIR));
    const withoutSeed = config.BACKUP_WITHOUT_SEED;
    const done = await makeBackup({ dataDir, directory, withoutSeed, serveObjects, say, signal });
    say(`${path.join(directory, done.name)} is complete.`);
    say(
      `  cut: ${done.cutAt.toISOString()}, ${done.apps} apps, ${done.contents} blobs (${done.copied} of them copied now)`,
    );
    if (withoutSeed)
      say('  It does not contain wallet-seed and encryption-seed: without copies of them the backup is useless.');
    else
      say(
        '  It contains the seeds and the operator key: anyone who can read it can spend the money in the wallets, and ' +
          'read encrypted fields.',
      );
  },
});
