import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import { jsonText, parseAsWritten } from '../exact-json.ts';
import { Failure } from '../failure.ts';
import type { AppDefinitions } from './app-definitions.ts';
import { describesBlob, isListOfFolder, listedFiles, linesOf, pathOfFile } from './app-files.ts';
import type { FileFacts, Manifest } from './app-manifest.ts';
import { fileBytes } from './file-bytes.ts';
import { RecordCutter } from './record-cutter.ts';
import { writeWhole } from './state-file.ts';

export const manifestName = 'manifest.json';
export const definitionsName = 'definitions.json';

export interface FilesLeftOut {
  /** Documents that may describe a file, in an export without files. */
  unfetched: number;
  /** Files that were deleted or replaced before they were fetched. */
  deleted: number;
  /** Documents that may describe a file, of which the service has none. */
  absent: number;
}

/** Sentences about what a folder lacks, so that nobody takes it for more than it is. */
export const leftOut = (files: FilesLeftOut, failedIndexes: readonly string[]): string[] => [
  'Keys, the wallet, payouts, grants and other settings of money: they stay with the app.',
  'The history of documents, and the hash chain: the documents of one height begin anew.',
  ...(files.unfetched === 0
    ? []
    : [
        `Uploaded files: ${files.unfetched} documents look as if they described one, and are there as plain documents.`,
      ]),
  ...(files.deleted === 0
    ? []
    : [
        `Files that were deleted or replaced since the height of the export: ${files.deleted}. Their documents are there.`,
      ]),
  ...(files.absent === 0
    ? []
    : [`Documents that look as if they described a file, but have none: ${files.absent}. They are plain documents.`]),
  ...(failedIndexes.length === 0 ? [] : [`Indexes that could not be built: ${failedIndexes.join(', ')}.`]),
];

/** The paths of the files of documents. On some systems `Books` and `books` are one name. */
export function documentFiles(collections: readonly string[]): Map<string, string> {
  const files = new Map<string, string>();
  const taken = new Set<string>();
  for (const name of collections) {
    let file = `documents/${name}.ndjson`;
    for (let count = 2; taken.has(file.toLowerCase()); count += 1) file = `documents/${name}.${count}.ndjson`;
    taken.add(file.toLowerCase());
    files.set(name, file);
  }
  return files;
}

export const datasetFile = (index: number): string => `datasets/${index + 1}.json`;

/** The size and the hash of a file, and what its documents are where they are lines of JSON. */
export async function factsOf(folder: string, file: string): Promise<FileFacts & { documents: number; blobs: number }> {
  const hash = createHash('sha256');
  const cutter = new RecordCutter(false);
  let [bytes, documents, blobs] = [0, 0, 0];
  for await (const chunk of fileBytes(join(folder, file))) {
    hash.update(chunk);
    bytes += chunk.length;
    const records = cutter.cut(chunk);
    documents += records?.count ?? 0;
    if (records?.bytes.includes('"blob_id"')) {
      blobs += linesOf(records.bytes).filter(describesBlob).length;
    }
  }
  return { file, bytes, sha256: hash.digest('hex'), documents, blobs };
}

/** Writes a file of JSON: whole, or not at all; `indent` as for `JSON.stringify`. */
export const writeJson = (folder: string, file: string, value: unknown, indent?: number): Promise<void> =>
  writeWhole(join(folder, file), `${jsonText(value, indent)}\n`);

/** The manifest of a folder, and its hash. Throws Failure where there is none, or it is none. */
export async function readManifest(folder: string): Promise<{ manifest: Manifest; sha256: string }> {
  const text = await readFile(join(folder, manifestName), 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new Failure(
      error.code === 'ENOENT' ? `${folder} is not a whole export: it has no ${manifestName}` : error.message,
      { nextStep: '`granary export --all --out <folder>` makes one, and goes on with one that has begun.' },
    );
  });
  const manifest = parsedManifest(text);
  if (!manifest) throw new Failure(`${join(folder, manifestName)} is damaged, or of another release`);
  return { manifest, sha256: createHash('sha256').update(text).digest('hex') };
}

/** Undefined for what is no manifest, and for one whose files would be outside of its folder. */
export function parsedManifest(text: string): Manifest | undefined {
  try {
    const manifest = JSON.parse(text) as Manifest;
    const files = [...manifest.collections, ...manifest.files];
    const isWhole =
      manifest.granary_export === (manifest.collections.some(({ uploads }) => uploads) ? 2 : 1) &&
      manifest.files.some(({ file }) => file === definitionsName) &&
      files.every(({ file, sha256 }) => isInside(file) && /^[0-9a-f]{64}$/.test(sha256)) &&
      manifest.collections.every(({ name, documents }) => typeof name === 'string' && Number.isInteger(documents)) &&
      manifest.collections.every(({ uploads }) => uploads === undefined || isListOfFolder(uploads));
    return isWhole ? manifest : undefined;
  } catch {
    return undefined;
  }
}

const isInside = (file: string): boolean => !isAbsolute(file) && !/[\\:]/.test(file) && !file.split('/').includes('..');

export interface CheckOptions {
  /** Uploaded files need not be there. */
  withoutFiles: boolean;
  /** Is told of each file before it is read. */
  onFile: (file: string) => void;
}

/** Throws Failure for a file that is not the one of the manifest. */
export async function checkFiles(
  folder: string,
  manifest: Manifest,
  { withoutFiles, onFile }: CheckOptions,
): Promise<void> {
  const lists = manifest.collections.flatMap(({ uploads }) => uploads ?? []);
  for (const { file, sha256 } of [...manifest.files, ...manifest.collections, ...lists]) {
    onFile(file);
    const facts = await factsOf(folder, file);
    if (facts.sha256 !== sha256) throw new Failure(`${join(folder, file)} is not the file that ${manifestName} names`);
  }
  if (withoutFiles) return;
  for (const { file: list } of lists) {
    for await (const { blob_id, sha256 } of listedFiles(folder, list)) {
      const path = pathOfFile(folder, list, blob_id);
      onFile(path);
      if ((await hashOf(path)) !== sha256) throw new Failure(`${path} is not the file that ${list} names`);
    }
  }
}

async function hashOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of fileBytes(path)) hash.update(chunk);
  return hash.digest('hex');
}

export async function readDefinitionsFile(folder: string): Promise<AppDefinitions> {
  return parseAsWritten(await readFile(join(folder, definitionsName), 'utf8')) as AppDefinitions;
}
