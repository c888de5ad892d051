import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { Failure } from '../failure.ts';

export const lockOf = (file: string): string => `${file}.lock`;

/** Locks of this process, by their whole paths. */
const held = new Set<string>();

/**
 * Keeps other commands from writing a file at the same time. Resolves to what ends that. A lock that a command has left
 * which was killed is taken over. Throws Failure.
 */
export async function lock(file: string): Promise<() => Promise<void>> {
  const path = resolve(lockOf(file));
  if (!(await isMade(path))) {
    const holder = await readFile(path, 'utf8').catch(() => '');
    if (isRunning(holder, path)) throw inUse(file, holder);
    await removeLeft(path, holder);
    if (!(await isMade(path))) throw inUse(file, await readFile(path, 'utf8').catch(() => ''));
  }
  held.add(path);
  return async () => {
    if (held.delete(path)) await rm(path, { force: true });
  };
}

/** False where there is a lock already. */
async function isMade(path: string): Promise<boolean> {
  try {
    await writeFile(path, String(process.pid), { flag: 'wx' });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw new Failure(`${path} cannot be written: ${(error as Error).message}`);
  }
}

/** A lock without a number is one that is being written. */
function isRunning(holder: string, path: string): boolean {
  const pid = /^\d+$/.test(holder) ? Number(holder) : undefined;
  if (pid === undefined) return true;
  // In a container each command may have the same number.
  if (pid === process.pid) return held.has(path);
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

/** Another command may take it over meanwhile: its lock is put back. */
async function removeLeft(path: string, holder: string): Promise<void> {
  const aside = `${path}.${process.pid}`;
  await rename(path, aside).catch(() => {});
  const moved = await readFile(aside, 'utf8').catch(() => holder);
  if (moved === holder) await rm(aside, { force: true });
  else await rename(aside, path);
}

function inUse(file: string, holder: string): Failure {
  const who = holder === '' ? 'Another command' : `The command with the process id ${holder}`;
  return new Failure(`${who} writes ${file}`, {
    nextStep: `Wait for it. Where no such command runs, remove ${lockOf(file)}.`,
  });
}
