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
  const wanted = path.resolve(options.explicit ?? options.defaultDir);
  const user = await findPostgresUser(wanted);
  if (!user) return { dataDir: wanted };
  const closed = await firstClosedFolder(wanted, user);
  if (closed === undefined || (closed === wanted && (await isOursToOpen(wanted)))) return { dataDir: wanted };
  const reason = `Postgres runs as the user "${user.name}" because it refuses root, and "${user.name}" cannot enter ${closed}`;
  if (options.explicit !== undefined) {
    throw new StartError(`The data directory ${wanted} cannot be used: ${reason}; choose one outside it.`);
  }
  const checkout = createHash('sha256').update(path.dirname(wanted)).digest('hex').slice(0, 12);
  return { dataDir: path.join(systemFolder, checkout), note: `${reason}, so the data is kept elsewhere.` };
}

/** Creates the data directory if needed, makes it accessible to the server's user, and returns its real path. */
export async function openDataDir(dataDir: string, user: SystemUser | undefined): Promise<string> {
  const wanted = path.resolve(dataDir);
  await makeFolders(wanted, 0o700);
  if (user) {
    const closed = await firstClosedFolder(wanted, user);
    if (closed === wanted && (await isOursToOpen(wanted))) {
      // The server's group may only traverse the directory, not list it.
      const { mode } = await stat(wanted);
      await chown(wanted, 0, user.gid);
      await chmod(wanted, (mode & 0o777) | 0o010);
    } else if (closed !== undefined) {
      throw new StartError(`The user "${user.name}", under which Postgres runs, cannot enter ${closed}.`);
    }
  }
  return realpath(wanted);
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
