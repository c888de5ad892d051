import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { copyFile, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { exists } from '@granary/local/postgres/system-user';
import { withProgress } from '@granary/local/start/progress';
import { cacheFolder, installOnce } from './cache';
import { findCommand, MissingToolError, runTool } from './tools';

/** A program that tests run out of Debian's packages where the machine does not have it. */
export interface DebianProgram {
  /** The command of a machine that has it. */
  command: string;
  /** Why it is needed, for the message where it is missing. */
  needed: string;
  /** Packages that are unpacked even where they are installed; those that they depend on are where they are not. */
  packages: readonly string[];
  /** Its path in the packages. */
  executable: string;
  /** Has it print its version, which shows that it finds its libraries. */
  versionOption: string;
  /** Files of this repository that are copied beside it, by the environment variables that name them to it. */
  files?: Readonly<Record<string, string>>;
}

export const nginx: DebianProgram = {
  command: 'nginx',
  needed: 'The proxy of docs/server.md is tested with nginx',
  packages: ['nginx'],
  executable: 'usr/sbin/nginx',
  versionOption: '-v',
};

/** The fonts of its packages are the only ones that it uses, so that pages look alike wherever it was fetched. */
export const chromium: DebianProgram = {
  command: 'chromium',
  needed: 'Web pages are tested in Chromium',
  packages: ['chromium', 'fonts-liberation', 'fonts-dejavu-core'],
  executable: 'usr/lib/chromium/chromium',
  versionOption: '--version',
  files: { FONTCONFIG_FILE: path.join(__dirname, '../../fonts.conf') },
};

/**
 * Unpacks the packages of a program into the cache, with those that they depend on and the machine lacks, and returns
 * the command that starts it. Needs no rights, and nothing of the machine changes: an installed nginx would start a
 * server on port 80. Throws a MissingToolError where apt-get is missing or fails.
 */
export async function prepareDebianProgram(
  program: DebianProgram,
  say: (line: string) => void,
  signal?: AbortSignal,
): Promise<string> {
  const present = await findDebianProgram(program);
  if (present !== undefined) return present;
  const install = (staging: string): Promise<void> =>
    withProgress(say, `Fetching ${program.command} by apt-get (once)`, () => unpack(program, staging, signal));
  try {
    return startFileIn(await installOnce(folderName(program), install, signal), program);
  } catch (error) {
    signal?.throwIfAborted();
    const { command, needed } = program;
    throw new MissingToolError(`${command} cannot be fetched: ${needed}. ${(error as Error).message}`, {
      cause: error,
    });
  }
}

/**
 * The command of the machine or of the cache; undefined where neither has it. Throws a MissingToolError where it cannot
 * be fetched either, without apt-get.
 */
export async function findDebianProgram(
  program: DebianProgram,
  env: NodeJS.ProcessEnv = process.env,
): Promise<string | undefined> {
  const { command, needed } = program;
  const ofMachine = await findCommand(command, env);
  if (ofMachine !== undefined) return ofMachine;
  if ((await findCommand('apt-get', env)) === undefined) {
    throw new MissingToolError(`${command} is missing, and so is apt-get to fetch it: ${needed}.`);
  }
  const startFile = startFileIn(path.join(await cacheFolder(), folderName(program)), program);
  return (await exists(startFile)) ? startFile : undefined;
}

/** Other packages and files use another folder. */
function folderName(program: DebianProgram): string {
  const digest = createHash('sha256').update(JSON.stringify({ ...program, files: Object.keys(program.files ?? {}) }));
  for (const file of Object.values(program.files ?? {})) digest.update(readFileSync(file));
  return `${program.command}-debian-${digest.digest('hex').slice(0, 12)}`;
}

const startFileIn = (folder: string, { command }: DebianProgram): string => path.join(folder, command);

async function unpack(program: DebianProgram, staging: string, signal: AbortSignal | undefined): Promise<void> {
  const state = path.join(staging, 'apt');
  for (const archive of await download(program.packages, state, signal)) {
    await runTool('dpkg-deb', ['-x', archive, staging], { cwd: staging, signal });
  }
  await rm(state, { recursive: true });
  for (const file of Object.values(program.files ?? {})) {
    await copyFile(file, path.join(staging, path.basename(file)));
  }
  const startFile = startFileIn(staging, program);
  await writeFile(startFile, await startText(program, staging), { mode: 0o755 });
  await runTool(startFile, [program.versionOption], { cwd: staging, signal });
}

/**
 * Downloads packages, and those that they depend on and the machine lacks. apt-get gets lists of its own below `state`:
 * those of the machine may be absent or name versions that are not offered any more, and only root may renew them.
 */
async function download(
  packages: readonly string[],
  state: string,
  signal: AbortSignal | undefined,
): Promise<string[]> {
  const [lists, archives] = [path.join(state, 'lists'), path.join(state, 'archives')];
  for (const folder of [lists, archives]) await mkdir(path.join(folder, 'partial'), { recursive: true });
  const settings = {
    'Dir::State::lists': lists,
    'Dir::Cache': state,
    'Dir::Cache::archives': archives,
    // The locks of the machine are for who changes it, and only root may take them.
    'Debug::NoLocking': 'true',
    // A source that cannot be reached would only be a warning.
    'APT::Update::Error-Mode': 'any',
  };
  const options = Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`]);
  const apt = (...args: string[]) => runTool('apt-get', [...args, ...options], { cwd: state, signal });
  // A source of the machine that fails need not be one of those that have the packages.
  const updateProblem = await apt('update').then(
    () => '',
    (error: Error) => `\n${error.message}`,
  );
  const install = ['install', '--download-only', '--reinstall', '--no-install-recommends', '--yes'];
  await apt(...install, ...packages).catch((cause: Error) => {
    throw new Error(`${cause.message}${updateProblem}`, { cause });
  });
  const names = await readdir(archives);
  return names.filter((name) => name.endsWith('.deb')).map((name) => path.join(archives, name));
}

/** Starts the program with the libraries and files beside it, wherever the folder is. */
async function startText({ executable, files = {} }: DebianProgram, staging: string): Promise<string> {
  const entries = await readdir(staging, { recursive: true, withFileTypes: true });
  const folders = entries.filter(({ name }) => /^lib.+\.so(\.|$)/.test(name)).map(({ parentPath }) => parentPath);
  const libraries = [...new Set(folders)].sort().map((folder) => `$here/${path.relative(staging, folder)}`);
  const settings = Object.entries(files).map(([name, file]) => `export ${name}="$here/${path.basename(file)}"`);
  if (libraries.length > 0) settings.push(`export LD_LIBRARY_PATH="${libraries.join(':')}"`);
  return ['#!/bin/sh', 'here=${0%/*}', ...settings, `exec "$here/${executable}" "$@"`, ''].join('\n');
}
