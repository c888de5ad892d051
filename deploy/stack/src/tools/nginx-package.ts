import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { exists } from '@granary/local/postgres/system-user';
import { cacheFolder, installOnce } from './cache';
import { findCommand, MissingToolError, runTool } from './tools';

const cacheName = 'nginx-debian';
const programIn = (folder: string): string => path.join(folder, 'usr/sbin/nginx');
const needed = 'The proxy of docs/server.md is tested with nginx';

/**
 * Unpacks Debian's package of nginx into the cache, and returns its program. Nothing of the machine changes: an
 * installed package would start a server on port 80. Throws a MissingToolError where apt-get or its lists of packages
 * are missing.
 */
export async function prepareNginx(say: (line: string) => void, signal?: AbortSignal): Promise<string> {
  const installed = await findNginx();
  if (installed !== undefined) return installed;
  const folder = await installOnce(
    cacheName,
    async (staging) => {
      say('Fetching nginx by apt-get …');
      await download(staging, signal);
      const [file = ''] = (await readdir(staging)).filter((name) => name.endsWith('.deb'));
      await runTool('dpkg-deb', ['-x', file, '.'], { cwd: staging, signal });
    },
    signal,
  );
  return programIn(folder);
}

/**
 * The program of the machine or of the cache; undefined where neither has it. Throws a MissingToolError without
 * apt-get.
 */
export async function findNginx(): Promise<string | undefined> {
  const ofMachine = await findCommand('nginx');
  if (ofMachine !== undefined) return ofMachine;
  if ((await findCommand('apt-get')) === undefined) throw new MissingToolError(`nginx is missing: ${needed}.`);
  const program = programIn(path.join(await cacheFolder(), cacheName));
  return (await exists(program)) ? program : undefined;
}

/** Downloads the package. A fresh machine has no lists of packages, which root can fetch. */
async function download(staging: string, signal: AbortSignal | undefined): Promise<void> {
  const get = () => runTool('apt-get', ['download', 'nginx'], { cwd: staging, signal });
  try {
    await get();
  } catch {
    try {
      if (process.getuid?.() === 0) await runTool('apt-get', ['update'], { cwd: '/', signal });
      await get();
    } catch (error) {
      throw new MissingToolError(`nginx cannot be fetched: ${needed}. ${(error as Error).message}`, { cause: error });
    }
  }
}
