import type { App } from '@granary/client';
import { Failure, UsageError } from '../failure.ts';
import { allOf } from '../session/listing.ts';
import { apiPath } from '../session/paths.ts';
import { forgetImport } from './import-file.ts';
import type { ImportNotes } from './unstored-files.ts';
import { folderStateOf, otherFiles, otherPlace, readState, writeState, type TransferState } from './state-file.ts';

/** An import of a folder that has begun. */
export interface AppImportState extends TransferState, ImportNotes {
  /** SHA-256 of the manifest. */
  manifest: string;
  /** Whether it began with --merge. */
  merges: boolean;
  /** Files that are handled, by the collection. */
  files: Record<string, number>;
  /** Collections that were there before: their definitions stay. */
  present: string[];
  /** Names of steps. */
  done: string[];
  /** The imports of documents by collection. */
  imports: Record<string, string>;
}

export interface AppImportCall {
  app: App;
  url: string;
  signal: AbortSignal;
  /** The app may have something in it. */
  merges: boolean;
  /** The files of the folder, and the documents that describe them, are left out. */
  withoutFiles: boolean;
  /** An import that has begun is forgotten. */
  restarts: boolean;
  /** Is told what is done now; `share` is from 0 to 1, where it is known. */
  onProgress: (text: string, share?: number) => void;
  onUnresumable: (reason: string) => void;
}

/** The import of the folder that has begun, or else a new one. Throws UsageError, Failure and GranaryError. */
export async function stateOfImport(folder: string, sha256: string, call: AppImportCall): Promise<AppImportState> {
  const { app, url, restarts, merges, withoutFiles } = call;
  const before = await readState<AppImportState>(folderStateOf(folder, 'import')).catch((error: unknown) => {
    if (restarts) return undefined;
    throw error;
  });
  if (!before) return begin(folder, sha256, await presentCollections(call), call);
  const reason =
    otherPlace(before, { url, app: app.id }) ?? (before.manifest === sha256 ? undefined : 'the folder was changed');
  if (restarts) {
    if (reason !== undefined) return begin(folder, sha256, await presentCollections(call), call);
    // The app has nothing but what this import has made, unless it was to merge from the beginning.
    if (before.merges && !merges) await presentCollections(call);
    for (const importId of Object.values(before.imports)) await forgetImport(app, importId, call.signal);
    return begin(folder, sha256, before.present, call);
  }
  const otherMerge = before.merges === merges ? undefined : `it began ${before.merges ? 'with' : 'without'} --merge`;
  const difference = reason ?? otherMerge ?? otherFiles(before, withoutFiles);
  if (difference === undefined) return before;
  throw new Failure(`An import of ${folder} has begun, and is another one: ${difference}`, {
    nextStep: '--restart forgets it and begins with this app; what it has stored stays.',
  });
}

/** Notes an import that begins. */
async function begin(
  folder: string,
  sha256: string,
  present: string[],
  { app, url, merges, withoutFiles, onUnresumable }: AppImportCall,
): Promise<AppImportState> {
  const state: AppImportState = {
    version: 1,
    url,
    app: app.id,
    manifest: sha256,
    merges,
    withoutFiles,
    files: {},
    unstoredFiles: {},
    present,
    done: [],
    imports: {},
    problems: [],
    kept: [],
  };
  await writeState(folderStateOf(folder, 'import'), state).catch((error: Error) => onUnresumable(error.message));
  return state;
}

/** The collections of the app. Throws UsageError where it has something in it, and nothing is to be merged. */
async function presentCollections({ app, merges, signal }: AppImportCall): Promise<string[]> {
  const names = (kind: string, member?: string) =>
    allOf<{ name: string }>(app, apiPath('apps', app.id, kind), member, { signal });
  const present = (await names('collections')).map(({ name }) => name);
  const others = [
    ...(await names('views', 'views')),
    ...(await names('queries', 'queries')),
    ...(await names('datasets', 'datasets')),
  ];
  if (!merges && present.length + others.length > 0) {
    const first = present[0] ?? others[0]!.name;
    throw new UsageError(
      `The app "${app.id}" is not empty: it has "${first}"`,
      'Name an empty one by --app, or add --merge: what is there stays, and documents of the same id are replaced.',
    );
  }
  return present;
}
