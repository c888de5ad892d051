import { randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@granary/shared/logger';
import { rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { appNotFound, type App } from '../catalog/app';
import { readCatalogRevision } from '../catalog/app-lock';

export interface DocumentsContext {
  pool: Pool;
  log: Logger;
  /** The directory in which this copy of the service keeps generated documents as files. */
  skillsDirectory: string;
}

/** A document that is generated from the catalog of an app, and kept as a file until the catalog changes. */
export interface CatalogDocument {
  /** Made of the number of the app: no text of a caller is part of a path. */
  fileName: string;
  /** The text with which the document of this revision of the catalog begins, and no other one. */
  headOf(revision: bigint): string;
  /** The text of the catalog as it is now. */
  generate(): Promise<GeneratedText>;
}

export interface GeneratedText {
  text: string;
  revision: bigint;
}

/**
 * The text from its file if that is of the current revision of the catalog; else it is generated. Throws APP_NOT_FOUND.
 */
export async function readDocument(
  context: DocumentsContext,
  app: App,
  document: CatalogDocument,
): Promise<GeneratedText> {
  const revision = await readCatalogRevision(context.pool, app.number);
  if (revision === undefined) throw appNotFound(app.appId);
  const text = await readFile(join(context.skillsDirectory, document.fileName), 'utf8').catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return undefined;
      throw error;
    },
  );
  return text?.startsWith(document.headOf(revision)) ? { text, revision } : writeOnce(context, document, revision);
}

/** Documents that are being written, by file and revision: concurrent requests share one. */
const writing = new Map<string, Promise<GeneratedText>>();

/** The document of this revision or of a later one. */
function writeOnce(context: DocumentsContext, document: CatalogDocument, revision: bigint): Promise<GeneratedText> {
  const key = `${join(context.skillsDirectory, document.fileName)}/${revision}`;
  const pendingWrite = writing.get(key);
  if (pendingWrite) return pendingWrite;
  const written = writeDocument(context, document).finally(() => writing.delete(key));
  writing.set(key, written);
  return written;
}

/** Generates the document and writes its file. */
export async function writeDocument(context: DocumentsContext, document: CatalogDocument): Promise<GeneratedText> {
  const generated = await document.generate();
  const file = join(context.skillsDirectory, document.fileName);
  const fresh = `${file}.${randomUUID()}`;
  try {
    await mkdir(context.skillsDirectory, { recursive: true });
    await writeFile(fresh, generated.text);
    await rename(fresh, file);
  } catch (error) {
    await rm(fresh, { force: true });
    // On a full disk the text is still returned.
    context.log.warn({ err: error, file: document.fileName }, 'a generated document could not be written');
  }
  return generated;
}

/** Removes the files of an app from this copy of the service. */
export const removeDocuments = (context: Pick<DocumentsContext, 'skillsDirectory'>, appNumber: bigint): Promise<void> =>
  removeFiles(context, (number) => number === appNumber);

/** Removes the files of apps that were deleted while this copy of the service did not run, or by another copy. */
export async function removeAbandonedDocuments(
  context: Pick<DocumentsContext, 'pool' | 'skillsDirectory'>,
): Promise<void> {
  const numbers = new Set((await filesOf(context)).map(({ number }) => number));
  if (numbers.size === 0) return;
  const applications = await rows<{ number: bigint }>(
    context.pool,
    sql`select number from application where number = any(${[...numbers].map(String)}::int8[]) and deleted_at is null`,
  );
  const present = new Set(applications.map(({ number }) => number));
  await removeFiles(context, (number) => !present.has(number));
}

async function removeFiles(
  context: Pick<DocumentsContext, 'skillsDirectory'>,
  isRemoved: (appNumber: bigint) => boolean,
): Promise<void> {
  for (const { file, number } of await filesOf(context)) {
    if (isRemoved(number)) await rm(join(context.skillsDirectory, file), { force: true });
  }
}

/** The files of documents, each with the number of its app; other files of the directory are left alone. */
async function filesOf({ skillsDirectory }: Pick<DocumentsContext, 'skillsDirectory'>) {
  const files = await readdir(skillsDirectory).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  return files.flatMap((file) => {
    const number = /^(\d{1,18})\.(?:[a-z]+\.)*(?:md|json)(?:\.[0-9a-f-]{36})?$/.exec(file)?.[1];
    return number === undefined ? [] : [{ file, number: BigInt(number) }];
  });
}
