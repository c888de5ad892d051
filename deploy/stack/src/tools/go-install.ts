import { rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { exists } from '@granary/local/postgres/system-user';
import { cacheFolder, installOnce } from './cache';
import { withProgress } from '@granary/local/start/progress';
import { findGo, isWritable, runTool } from './tools';

export interface GoPrograms {
  /** The folder in the cache; it contains the versions. */
  folderName: string;
  /** The name of what is built, for the line that reports progress. */
  title: string;
  /** Why Go is needed, for the message where it is missing. */
  needed: string;
  /** Commands of modules with their versions, `example.com/module/cmd/name@v1.2.3`. */
  packages: readonly string[];
  /** Settings of Go for the build. */
  env?: Record<string, string>;
  /** Adds further files to the folder; `env` is that of `go`. */
  complete?: (staging: string, env: NodeJS.ProcessEnv, signal: AbortSignal | undefined) => Promise<void>;
}

export async function areGoProgramsInstalled({ folderName }: GoPrograms): Promise<boolean> {
  return exists(path.join(await cacheFolder(), folderName));
}

/**
 * Builds the programs into the cache if they are missing, with modules from where Go's settings say, and returns their
 * folder. Throws a MissingToolError if a build is needed and Go is missing.
 */
export async function installGoPrograms(
  programs: GoPrograms,
  say: (line: string) => void,
  signal?: AbortSignal,
): Promise<string> {
  const install = async (staging: string): Promise<void> => {
    await findGo(programs.needed);
    const bin = path.join(staging, 'bin');
    const env = { ...process.env, ...programs.env, ...(await ownCaches(staging, signal)), GOBIN: bin };
    await withProgress(say, `Building ${programs.title} by Go (once; that takes some minutes)`, async () => {
      for (const each of programs.packages) {
        // Without debug tables a binary is a third smaller.
        await runTool('go', ['install', '-trimpath', '-ldflags=-s -w', each], { cwd: staging, env, signal });
        const name = path.basename(each.replace(/@.*$/, ''));
        await rename(path.join(bin, name), path.join(staging, name));
      }
      await programs.complete?.(staging, env, signal);
    });
    for (const name of ['bin', 'go', 'build']) await rm(path.join(staging, name), { recursive: true, force: true });
  };
  return installOnce(programs.folderName, install, signal);
}

/** Go caches modules and build results in the user's folders; a user without writable ones gets temporary caches. */
async function ownCaches(staging: string, signal: AbortSignal | undefined): Promise<NodeJS.ProcessEnv> {
  const output = await runTool('go', ['env', 'GOMODCACHE', 'GOCACHE'], { cwd: staging, signal }).catch(() => '');
  const folders = output.split('\n').filter((folder) => path.isAbsolute(folder));
  const usable = await Promise.all(folders.map(isWritable));
  if (usable.length === 2 && usable.every(Boolean)) return {};
  const flags = `${process.env.GOFLAGS ?? ''} -modcacherw`.trim();
  const modules = path.join(staging, 'go');
  // Go unpacks modules read-only, so that they could not be removed without this flag.
  return {
    GOPATH: modules,
    GOMODCACHE: path.join(modules, 'mod'),
    GOCACHE: path.join(staging, 'build'),
    GOFLAGS: flags,
  };
}
