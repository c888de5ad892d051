import { rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { identify } from './processes';

/** The file of a data directory that says where the Granary on it answers; `npm run demo` reads it. */
export const runningFile = 'running.json';

/** Notes that this process serves `url`. The answered function removes the note; one that a kill left names a dead process. */
export async function noteRunning(dataDir: string, url: string): Promise<() => Promise<void>> {
  const file = path.join(dataDir, runningFile);
  const remove = () => rm(file, { force: true }).catch(() => {});
  // On a full disk it cannot be written, and Granary can be read all the same.
  await writeFile(file, `${JSON.stringify({ url, process: identify(process.pid) })}\n`).catch(remove);
  return remove;
}
