import { rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { identify } from './processes';

/** The file of a data directory with the URL of the running Granary; `npm run demo` reads it. */
export const runningFile = 'running.json';

/**
 * Records that this process serves `url`, and returns a function that removes the record. A killed process leaves a
 * record, with the identity of a dead process.
 */
export async function noteRunning(dataDir: string, url: string): Promise<() => Promise<void>> {
  const file = path.join(dataDir, runningFile);
  const remove = () => rm(file, { force: true }).catch(() => {});
  // On a full disk the file cannot be written, but Granary can still serve reads.
  await writeFile(file, `${JSON.stringify({ url, process: identify(process.pid) })}\n`).catch(remove);
  return remove;
}
