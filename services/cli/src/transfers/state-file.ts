import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Failure } from '../failure.ts';

/** The state of a transfer that has begun, by which it goes on. It has no key. */
export interface TransferState {
  /** The version of the form of the file. */
  version: 1;
  url: string;
  app: string;
}

/** The state of a transfer; undefined where there is none. Throws Failure where the file is none of ours. */
export async function readState<T extends TransferState>(file: string): Promise<T | undefined> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new Failure(`${file} cannot be read: ${(error as Error).message}`);
  }
  const state = parsedState(text);
  if (state) return state as T;
  throw new Failure(`${file} is damaged, or of another release`, { nextStep: '--restart begins anew.' });
}

export function parsedState(text: string): TransferState | undefined {
  try {
    const state = JSON.parse(text) as Partial<TransferState> | null;
    const isOurs = state?.version === 1 && typeof state.url === 'string' && typeof state.app === 'string';
    return isOurs ? (state as TransferState) : undefined;
  } catch {
    return undefined;
  }
}

/** The file of the state of a whole app's transfer into a folder, or from it. */
export const folderStateOf = (folder: string, kind: 'export' | 'import'): string => join(folder, `.granary-${kind}`);

/** The file that a command writes first; one that was killed leaves it, and the next one replaces it. */
export const stagingOf = (file: string): string => `${file}.new`;

/** Stores it: a reader sees the state of before or the new one. Throws the error of the file system. */
export const writeState = (file: string, state: TransferState): Promise<void> =>
  writeWhole(file, `${JSON.stringify(state, null, 2)}\n`);

/** Writes a file at once; unlike `replaceFile` a command that is killed leaves one name only beside it. */
export async function writeWhole(file: string, text: string): Promise<void> {
  await writeFile(stagingOf(file), text);
  await rename(stagingOf(file), file);
}

export async function removeState(file: string): Promise<void> {
  await rm(stagingOf(file), { force: true });
  await rm(file, { force: true });
}

/** The reason why a transfer that began with or without files does not go on as `withoutFiles` says. */
export function otherFiles(state: { withoutFiles?: boolean }, withoutFiles: boolean): string | undefined {
  if (state.withoutFiles === undefined) return 'it was begun by an earlier release';
  return state.withoutFiles === withoutFiles ? undefined : `it began ${withoutFiles ? 'with' : 'without'} files`;
}

/** The reason why a transfer of another place does not go on here; undefined for one of this place. */
export function otherPlace(state: TransferState, { url, app }: { url: string; app: string }): string | undefined {
  if (state.url === url && state.app === app) return undefined;
  return `it is of the app "${state.app}" at ${state.url}`;
}
