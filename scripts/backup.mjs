import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { checkNode, prepare, readFlags } from './launch.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

const help = `Backs up all data of a Granary, running or not, to a directory of backups.

  npm run backup -- <directory> [--data-dir <path>] [--without-seed]

  <directory>         the directory of backups; blobs that it already contains are not copied    (BACKUP_DIR)
  --data-dir <path>   default: the data directory of npm start or npm run stack                 (DATA_DIR)
  --without-seed      excludes the seeds of wallets and of encrypted fields;
                      keep copies of them elsewhere
  -h, --help          prints this text`;

const flags = {
  '<directory>': 'BACKUP_DIR',
  '--data-dir': 'DATA_DIR',
  '--without-seed': ['BACKUP_WITHOUT_SEED', 'true'],
};

async function backup() {
  checkNode();
  if (!readFlags('backup', process.argv.slice(2), flags, help)) return;
  await prepare();
  await import(pathToFileURL(path.join(root, 'services/local/dist/backup/backup-main.js')).href);
}

backup().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
