import { rm } from 'node:fs/promises';
import path from 'node:path';
import { exists } from '@granary/local/postgres/system-user';
import { cacheFolder, installOnce } from './cache';
import { withProgress } from '@granary/local/start/progress';
import { MissingToolError, runTool } from './tools';

/**
 * The commit of the release from which installations are upgraded: during an upgrade its services run beside those of
 * this one, on the schema of this one. A new release writes the commit of the last one here.
 */
const commit = '21eea4756a6d371b17bc9c736ffef9d5df8030ed';

const root = path.join(__dirname, '../../../..');
const needed = 'upgrades are tested from the release before, whose sources are in the history of the repository';
const folderName = `release-${commit.slice(0, 12)}`;

const git = (args: string[], signal?: AbortSignal): Promise<string> => runTool('git', args, { cwd: root, signal });

export async function isReleaseBeforeInstalled(): Promise<boolean> {
  return exists(path.join(await cacheFolder(), folderName));
}

/** Checks that the sources of the release before can be had. Throws a MissingToolError. */
export async function findReleaseBefore(): Promise<void> {
  const isThere = () => git(['cat-file', '-e', `${commit}^{commit}`]);
  // A clone without the whole history fetches this commit alone.
  const fetched = () => git(['fetch', '--quiet', '--depth=1', 'origin', commit]).then(isThere);
  await isThere()
    .catch(fetched)
    .catch((cause: unknown) => {
      throw new MissingToolError(`The commit ${commit.slice(0, 7)} is missing: ${needed} (git fetch --unshallow).`, {
        cause,
      });
    });
}

/**
 * Builds the release before into the cache if it is missing, and returns the folder with its sources and builds. Throws
 * a MissingToolError if its sources are missing.
 */
export async function prepareReleaseBefore(say: (line: string) => void, signal?: AbortSignal): Promise<string> {
  const install = async (staging: string): Promise<void> => {
    await findReleaseBefore();
    await withProgress(say, 'Building the release before (once)', async () => {
      const archive = path.join(staging, 'release.tar');
      await git(['archive', `--output=${archive}`, commit], signal);
      await runTool('tar', ['-xf', archive], { cwd: staging, signal });
      await rm(archive);
      await runTool(process.execPath, await stagingArguments(staging), { cwd: staging, signal });
      await runTool('npm', ['prune', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund'], {
        cwd: staging,
        signal,
      });
    });
  };
  return installOnce(folderName, install, signal);
}

/** The arguments of Node with which a release installs and builds itself. */
async function stagingArguments(folder: string): Promise<string[]> {
  const script = path.join(folder, 'scripts/stage-release.mjs');
  if (await exists(script)) return [script];
  // 0.1.0, which is 21eea47, has no such script.
  return ['--input-type=module', '--eval', `import { prepare } from './scripts/launch.mjs'; await prepare();`];
}
