import { mkdirSync, rmSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { runChild } from '../child';
import { writeFolderImage } from '../image-programs';
import { copyProgram, libraryPath } from './program-image';

const postgresPrograms = ['pg_dump', 'pg_restore', 'psql'];
/** The programs that backup.sh and restore.sh of the chart call. */
const shellPrograms = [
  'sh',
  'cat',
  'date',
  'find',
  'mkdir',
  'mktemp',
  'mv',
  'rm',
  'sed',
  'sleep',
  'sort',
  'sync',
  'tail',
  'wc',
];

/** Writes the image that the backup of the chart needs: a shell, and the tools of Postgres from the folder `bin`. */
export async function writeToolsImage(
  archive: string,
  { reference, bin, directory }: { reference: string; bin: string; directory: string },
): Promise<void> {
  const layer = path.join(directory, 'tools');
  mkdirSync(layer);
  for (const name of shellPrograms) await copyProgram(layer, name, await findProgram(name));
  for (const name of postgresPrograms) await copyProgram(layer, name, path.join(bin, name));
  symlinkSync('usr/bin', path.join(layer, 'bin'));
  const Env = ['PATH=/usr/bin', libraryPath];
  await writeFolderImage(archive, { reference, config: { Env }, folder: layer });
  rmSync(layer, { recursive: true });
}

/** Returns the path of a command of this machine. */
export async function findProgram(name: string): Promise<string> {
  const { code, output } = await runChild('sh', ['-c', `command -v ${name}`]);
  if (code !== 0) throw new Error(`${name} is missing on this machine`);
  return output.trim();
}
