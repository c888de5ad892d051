import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { checkNode, prepare, readFlags } from './launch.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

const help = `Restores a backup to a data directory, and verifies all of it.

  npm run restore -- <directory> [--data-dir <path>] [--replace]

  <directory>         a backup, or a directory of backups, of which the newest is restored   (BACKUP_DIR)
  --data-dir <path>   an empty or new directory                                              (DATA_DIR)
  --replace           allows a directory with data of a stopped Granary; the data is moved aside
  -h, --help          prints this text`;

const flags = { '<directory>': 'BACKUP_DIR', '--data-dir': 'DATA_DIR', '--replace': ['RESTORE_REPLACE', 'true'] };

async function restore() {
  checkNode();
  if (!readFlags('restore', process.argv.slice(2), flags, help)) return;
  await prepare();
  await import(pathToFileURL(path.join(root, 'services/local/dist/backup/restore-main.js')).href);
}

restore().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
