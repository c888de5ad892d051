import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { exists } from '../postgres/system-user';
import { cacheFolder, installOnce } from './cache';
import { findPython, runTool } from './tools';

/** The tools of the tests of generated clients, each at one version. */
const requirements = path.join(__dirname, '../../test/clients/requirements.txt');

/** The interpreter that has the tools. */
const interpreterIn = (folder: string): string => path.join(folder, 'bin/python');

/** Puts a virtual environment with the tools into the cache. Throws a MissingToolError when Python is missing. */
export async function preparePythonTools(say: (line: string) => void, signal?: AbortSignal): Promise<string> {
  const { command, name } = await environment();
  const folder = await installOnce(
    name,
    async (staging) => {
      say('Installing schemathesis and openapi-python-client …');
      await runTool(command, ['-m', 'venv', staging], { cwd: '/', signal });
      const pip = ['-m', 'pip', 'install', '--quiet', '--no-input', '--disable-pip-version-check'];
      await runTool(interpreterIn(staging), [...pip, '-r', requirements], { cwd: '/', signal });
    },
    signal,
  );
  return interpreterIn(folder);
}

/** The interpreter of the installed tools, undefined before they are. Throws a MissingToolError. */
export async function findPythonTools(): Promise<string | undefined> {
  const interpreter = interpreterIn(path.join(await cacheFolder(), (await environment()).name));
  return (await exists(interpreter)) ? interpreter : undefined;
}

/** Other tools, and another Python, are another folder. */
async function environment(): Promise<{ command: string; name: string }> {
  const { command, version } = await findPython();
  const digest = createHash('sha256')
    .update(version)
    .update(await readFile(requirements));
  return { command, name: `python-tools-${digest.digest('hex').slice(0, 12)}` };
}
