import { createHash } from 'node:crypto';
import { chmod, chown, readdir, realpath, stat } from 'node:fs/promises';
import path from 'node:path';
import { StartError } from '@granary/shared/start-error';
import { exists, findPostgresUser, firstClosedFolder, makeFolders, type SystemUser } from './system-user';

export const systemFolder = '/var/lib/granary';
export const passwordFile = 'postgres-password';

export interface DataDir {
  /** Absolute path. */
  dataDir: string;
  /** The reason, for the user, why the default directory was not chosen. */
  note?: string;
}

/**
 * Chooses the data directory. Postgres must be able to enter it, and under root it runs as another user: an explicit
 * directory that this user cannot reach is refused with an Error; the default one moves below /var/lib/granary, to a
 * directory named after the checkout.
 */
export async function resolveDataDir(options: { explicit?: string | undefined; defaultDir: string }): Promise<DataDir> {
  const directory = path.resolve(options.explicit ?? options.defaultDir);
  const user = await findPostgresUser(directory);
  if (!user) return { dataDir: directory };
  const closed = await firstClosedFolder(directory, user);
  if (closed === undefined || (closed === directory && (await isOursToOpen(directory)))) return { dataDir: directory };
  const reason = `Postgres runs as the user "${user.name}" because it refuses root, and "${user.name}" cannot enter ${closed}`;
  if (options.explicit !== undefined) {
    throw new StartError(`The data directory ${directory} cannot be used: ${reason}; choose one outside it.`);
  }
  const checkout = createHash('sha256').update(path.dirname(directory)).digest('hex').slice(0, 12);
  return { dataDir: path.join(systemFolder, checkout), note: `${reason}, so the data is kept elsewhere.` };
}

/** Creates the data directory if needed, makes it accessible to the server's user, and returns its real path. */
export async function openDataDir(dataDir: string, user: SystemUser | undefined): Promise<string> {
  const directory = path.resolve(dataDir);
  await makeFolders(directory, 0o700);
  if (user) {
    const closed = await firstClosedFolder(directory, user);
    if (closed === directory && (await isOursToOpen(directory))) {
      // The server's group may only traverse the directory, not list it.
      const { mode } = await stat(directory);
      await chown(directory, 0, user.gid);
      await chmod(directory, (mode & 0o777) | 0o010);
    } else if (closed !== undefined) {
      throw new StartError(`The user "${user.name}", under which Postgres runs, cannot enter ${closed}.`);
    }
  }
  return realpath(directory);
}

/**
 * An empty directory is ours to initialise, and one with our password file was initialised by us: their modes may
 * change.
 */
async function isOursToOpen(directory: string): Promise<boolean> {
  const { uid } = await stat(directory);
  if (uid !== 0) return false;
  return (await exists(path.join(directory, passwordFile))) || (await readdir(directory)).length === 0;
}
