import { identify, isAbandoned } from '@granary/local/processes/processes';
import { chmodSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const prefix = 'granary-k8s.';
/** The folder of another container counts as abandoned after this long. */
const foreignMs = 86_400_000;

/** Makes a folder for temporary files that any account may read, and removes those of processes that were killed. */
export async function makeDirectory(): Promise<string> {
  const parent = os.tmpdir();
  for (const name of readdirSync(parent).filter((each) => each.startsWith(prefix))) {
    const folder = path.join(parent, name);
    if (!(await isAbandoned(name.split('.')[1] ?? '', folder, foreignMs))) continue;
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  }
  const directory = mkdtempSync(path.join(parent, `${prefix}${identify(process.pid)}.`));
  // Postgres does not run as root.
  chmodSync(directory, 0o755);
  return directory;
}
