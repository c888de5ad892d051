import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { checkNode, prepare, readFlags } from './launch.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

const help = `Copies all data of a Granary, which may be in use, to a directory that holds backups.

  npm run backup -- <directory> [--data-dir <path>] [--without-seed]

  <directory>         where the backups are kept; blobs that it has already are not copied again   (BACKUP_DIR)
  --data-dir <path>   that of npm start or npm run stack, by default whichever there is            (DATA_DIR)
  --without-seed      leaves out the seed of the wallets; keep a copy of it elsewhere
  -h, --help          this text`;

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
