import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { exitCodes, Failure, isGranaryError, UsageError } from '../failure.ts';
import { apiPath } from '../session/paths.ts';
import { readDefinitions } from './app-definitions.ts';
import {
  datasetFile,
  definitionsName,
  documentFiles,
  factsOf,
  leftOut,
  manifestName,
  parsedManifest,
  writeJson,
} from './app-folder.ts';
import type { CollectionFacts, FileFacts, ListFacts, Manifest } from './app-manifest.ts';
import { listFileOf } from './app-files.ts';
import { exportToFile, type ExportCall } from './export-collection.ts';
import { exportFiles, noFilesYet, type FilesProgress } from './export-files.ts';
import { countText } from './rate.ts';
import {
  folderStateOf,
  otherFiles,
  otherPlace,
  readState,
  removeState,
  stagingOf,
  writeState,
  type TransferState,
} from './state-file.ts';
import { lock, lockOf } from './transfer-lock.ts';

/** An export of an app that has begun. */
interface AppExportState extends TransferState {
  /** Whether the files of the definitions are there. */
  isDefined: boolean;
  height: number;
  /** All collections, in their order. */
  collections: string[];
  files: FileFacts[];
  done: CollectionFacts[];
  /** Indexes that could not be built, which are not in the definitions. */
  failedIndexes: string[];
  withoutFiles: boolean;
  /** The collection whose documents are there and whose files are being fetched. */
  fetching?: FilesProgress & { collection: string };
  /** Files that were deleted or replaced since the height of the export. */
  deletedFiles: number;
  /** Documents that look as if they described a file, of which there is none. */
  absentFiles: number;
}

export interface AppExportCall extends Omit<ExportCall, 'onProgress'> {
  /** An export that has begun is forgotten. */
  restarts: boolean;
  /** The documents that describe uploaded files are plain documents. */
  withoutFiles: boolean;
  /** `bytes` are those that have come of the documents, or of the files, of the collection since it was called. */
  onProgress: (progress: { collection: string; place: number; of: number; counted: string; bytes: number }) => void;
}

const stateName = basename(folderStateOf('', 'export'));
const lockName = basename(lockOf(folderStateOf('', 'export')));

/**
 * Exports a whole app into a folder: its definitions as they are now, and the documents of all collections at one
 * height. What has begun goes on with the collection at which it was. Throws UsageError, Failure, GranaryError, and
 * the reason of the signal.
 */
export async function exportApp(folder: string, call: AppExportCall): Promise<Manifest> {
  await mkdir(folder, { recursive: true }).catch((error: Error) => {
    throw new Failure(`${folder} cannot be used: ${error.message}`);
  });
  const release = await lock(folderStateOf(folder, 'export'));
  try {
    return await exportInto(folder, call);
  } finally {
    await release();
  }
}

async function exportInto(folder: string, call: AppExportCall): Promise<Manifest> {
  const { app } = call;
  const stateFile = folderStateOf(folder, 'export');
  const state = (await begunExport(folder, call)) ?? (await begin(folder, call));
  const files = documentFiles(state.collections);
  for (const [place, collection] of state.collections.entries()) {
    if (state.done.some(({ name }) => name === collection)) continue;
    const file = files.get(collection)!;
    const onProgress = (counted: string, bytes: number) =>
      call.onProgress({ collection, place: place + 1, of: state.collections.length, counted, bytes });
    if (state.fetching?.collection !== collection) {
      await exportToFile(
        join(folder, file),
        documentsOf(collection, state.height),
        { isForced: true, restarts: false },
        { ...call, onProgress: ({ records, bytes }) => onProgress(countText(records, 'record'), bytes) },
      ).catch((error: unknown) => {
        throw isGranaryError(error) && error.code === 'COLLECTION_NOT_FOUND' ? deletedMeanwhile(collection) : error;
      });
    }
    const facts = { name: collection, ...(await factsOf(folder, file)) };
    const isFetched = facts.blobs > 0 && !state.withoutFiles;
    const uploads = isFetched ? await fetchFiles(folder, { collection, file }, state, call, onProgress) : undefined;
    state.done.push(uploads ? { ...facts, uploads } : facts);
    await writeState(stateFile, state);
  }
  const manifest: Manifest = {
    granary_export: state.done.some(({ uploads }) => uploads) ? 2 : 1,
    app: app.id,
    height: state.height,
    exported_at: new Date().toISOString(),
    collections: state.done,
    files: state.files,
    left_out: leftOut(
      {
        unfetched: state.withoutFiles ? state.done.reduce((sum, { blobs }) => sum + blobs, 0) : 0,
        deleted: state.deletedFiles,
        absent: state.absentFiles,
      },
      state.failedIndexes,
    ),
  };
  await writeJson(folder, manifestName, manifest, 2);
  await removeState(stateFile);
  return manifest;
}

/** Fetches the files of a collection, and lists them; undefined where there are none. */
async function fetchFiles(
  folder: string,
  { collection, file }: { collection: string; file: string },
  state: AppExportState,
  { app, signal }: AppExportCall,
  onProgress: (counted: string, bytes: number) => void,
): Promise<ListFacts | undefined> {
  const { collection: _, ...before } = state.fetching ?? { collection, ...noFilesYet };
  const save = (progress: FilesProgress): Promise<void> => {
    state.fetching = { collection, ...progress };
    return writeState(folderStateOf(folder, 'export'), state);
  };
  await save(before);
  const fetched = await exportFiles(folder, { collection, documentsFile: file }, before, {
    app,
    signal,
    save,
    onProgress: ({ files, bytes }) => onProgress(countText(files, 'file'), bytes),
  });
  delete state.fetching;
  state.deletedFiles += fetched.deleted;
  state.absentFiles += fetched.absent;
  if (fetched.count === 0) {
    await rm(join(folder, listFileOf(file)), { force: true });
    return undefined;
  }
  const { file: list, bytes, sha256 } = await factsOf(folder, listFileOf(file));
  return { file: list, bytes, sha256, count: fetched.count, document_bytes: fetched.documentBytes };
}

const deletedMeanwhile = (collection: string): Failure =>
  new Failure(`The collection "${collection}" was deleted since the export began`, {
    nextStep: '--restart begins anew, without it.',
    exitCode: exitCodes.notFound,
  });

const documentsOf = (collection: string, height: number) => ({
  collection,
  format: 'ndjson' as const,
  find: undefined,
  select: undefined,
  columns: undefined,
  hasHistory: false,
  hasDeleted: true,
  escapesFormulas: false,
  height,
  isGzip: false,
});

/** The export that has begun in a folder; undefined where one is to begin in it. */
async function begunExport(
  folder: string,
  { app, url, restarts, withoutFiles }: AppExportCall,
): Promise<AppExportState | undefined> {
  const names = await namesIn(folder);
  if (restarts) {
    const earlier = await earlierExport(folder);
    if (names.length > 0 && !earlier) throw notEmpty(folder);
    await rm(join(folder, manifestName), { force: true });
    await removeState(folderStateOf(folder, 'export'));
    await rm(join(folder, 'documents'), { recursive: true, force: true });
    if (earlier?.hasFiles) await rm(join(folder, 'files'), { recursive: true, force: true });
    await rm(join(folder, 'datasets'), { recursive: true, force: true });
    return undefined;
  }
  if (names.includes(manifestName)) {
    throw new UsageError(`${folder} has a whole export already`, 'Name another folder, or add --restart.');
  }
  const state = await readState<AppExportState>(folderStateOf(folder, 'export'));
  if (!state) {
    if (names.length > 0) throw notEmpty(folder);
    return undefined;
  }
  const reason = otherPlace(state, { url, app: app.id }) ?? otherFiles(state, withoutFiles);
  if (reason === undefined) return state.isDefined ? state : undefined;
  throw new Failure(`${folder} has another export that has begun: ${reason}`, {
    nextStep: 'Name another folder; --restart begins anew in this one.',
  });
}

const notEmpty = (folder: string): UsageError =>
  new UsageError(`${folder} is not empty`, 'Name a folder that is empty, or not there.');

/** The export that has made a folder; undefined where none has: others may have some of the same names. */
async function earlierExport(folder: string): Promise<{ hasFiles: boolean } | undefined> {
  const manifest = parsedManifest(await readFile(join(folder, manifestName), 'utf8').catch(() => ''));
  if (manifest) return { hasFiles: manifest.collections.some(({ uploads }) => uploads !== undefined) };
  const state = await readState<AppExportState>(folderStateOf(folder, 'export')).catch(() => undefined);
  // Exports of the release before went without files, and did not say so.
  return state && { hasFiles: state.withoutFiles === false };
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    // A command that was killed may have left the beginning of its state.
    return (await readdir(folder)).filter((name) => name !== stagingOf(stateName) && name !== lockName);
  } catch (error) {
    throw new Failure(`${folder} cannot be used: ${(error as Error).message}`);
  }
}

/** Writes the definitions of an app, and chooses the height of its documents. */
async function begin(folder: string, { app, url, signal, withoutFiles }: AppExportCall): Promise<AppExportState> {
  const { height } = await app.request<{ height?: number }>('GET', apiPath('applications', app.id), { signal });
  if (height === undefined) {
    throw new Failure('A whole app is exported with a key of it', {
      nextStep: '`granary login` stores a key.',
      exitCode: exitCodes.notAllowed,
    });
  }
  const state: AppExportState = {
    version: 1,
    url,
    app: app.id,
    isDefined: false,
    height,
    collections: [],
    files: [],
    done: [],
    failedIndexes: [],
    withoutFiles,
    deletedFiles: 0,
    absentFiles: 0,
  };
  // The folder is known as ours from its first file on.
  await writeState(folderStateOf(folder, 'export'), state);
  const { definitions, failedIndexes } = await readDefinitions(app, signal);
  state.failedIndexes = failedIndexes;
  state.files.push(await written(folder, definitionsName, definitions, 2));
  for (const [index, name] of definitions.datasets.entries()) {
    await mkdir(join(folder, 'datasets'), { recursive: true });
    const path = apiPath('apps', app.id, 'datasets', name);
    const { values } = await app.request<{ values: unknown[] }>('GET', path, { signal });
    // Without white space it is as small as the service takes it.
    state.files.push(await written(folder, datasetFile(index), { values }));
  }
  await mkdir(join(folder, 'documents'), { recursive: true });
  state.collections = definitions.collections.map(({ name }) => name);
  state.isDefined = true;
  await writeState(folderStateOf(folder, 'export'), state);
  return state;
}

async function written(folder: string, file: string, value: unknown, indent?: number): Promise<FileFacts> {
  await writeJson(folder, file, value, indent);
  const { bytes, sha256 } = await factsOf(folder, file);
  return { file, bytes, sha256 };
}
