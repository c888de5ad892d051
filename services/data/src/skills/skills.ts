import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid, ServiceError } from '@granary/shared/errors';
import type { PutSkillsRequest } from '@granary/shared/gen/granary/data/v1/PutSkillsRequest';
import type { Skills } from '@granary/shared/gen/granary/data/v1/Skills';
import type { Logger } from '@granary/shared/logger';
import { execute, row, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { runSliced } from '@granary/shared/concurrency/time-slicing';
import { ownerPartOf, skillsMarkdown } from './markdown';
import { appNotFound, findApp, type App } from '../catalog/app';
import { bumpCatalogRevision, withAppLock } from '../catalog/app-lock';
import { readContent } from './content';

/** Bytes of the owner's part, at most. */
export const skillsBytesMax = 256 * 1024;
/** Incremented when the form of the generated text changes, so that files of older releases are written again. */
const formVersion = 3;
export interface SkillsContext {
  pool: Pool;
  log: Logger;
  /** Where this copy of the service keeps the documents as files, one for each app. */
  skillsDirectory: string;
  /** The address of the service in the examples. */
  publicUrl: string;
}

/**
 * The skills document of an app, from its file if that has the current revision of the catalog; else the file is
 * written again. Throws APP_NOT_FOUND.
 */
export async function getSkills(context: SkillsContext, appId: string): Promise<Skills> {
  const app = await findApp(context.pool, appId);
  const found = await row<{ revision: bigint }>(
    context.pool,
    sql`select catalog_revision as revision from head where app_number = ${app.number}`,
  );
  if (!found) throw appNotFound(appId);
  const { revision } = found;
  const file = fileOf(context, app.number);
  const kept = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (kept?.startsWith(`${firstLine(context, appId, revision)}\n`))
    return { markdown: kept, revision: revision.toString() };
  return writeOnce(context, app, revision);
}

/** Sets the owner's part, which precedes the generated one. Throws APP_NOT_FOUND, SKILLS_TOO_LARGE. */
export async function putSkills(context: SkillsContext, request: PutSkillsRequest): Promise<Skills> {
  const { appId, markdown } = request;
  if (Buffer.byteLength(markdown) > skillsBytesMax) {
    throw new ServiceError(
      'RESOURCE_EXHAUSTED',
      'SKILLS_TOO_LARGE',
      `The text is larger than ${skillsBytesMax / 1024} KiB`,
    );
  }
  if (markdown.includes('\0'))
    throw invalid('The text is not valid', { markdown: ['holds a character that cannot be stored'] });
  const app = await withAppLock(context.pool, appId, async (tx, owned) => {
    await execute(
      tx,
      sql`update application set skills_owner_part = ${ownerPartOf(markdown)}, updated_at = clock_timestamp() where number = ${owned.number}`,
    );
    await bumpCatalogRevision(tx, owned.number);
    return owned;
  });
  return writeSkills(context, app);
}

/** Named by the number of the app: no text of a caller is part of a path. */
const fileOf = (context: SkillsContext, appNumber: bigint): string => join(context.skillsDirectory, `${appNumber}.md`);

const baseUrlOf = ({ publicUrl }: SkillsContext): string => publicUrl.replace(/\/+$/, '');

const firstLine = (context: SkillsContext, appId: string, revision: bigint): string =>
  `<!-- ${appId}, revision ${revision}, form ${formVersion}, ${baseUrlOf(context)} -->`;

/** Documents that are being written, by app and revision: concurrent requests share one. */
const writing = new Map<string, Promise<Skills>>();

/** The document of this revision or of a later one. */
function writeOnce(context: SkillsContext, app: App, revision: bigint): Promise<Skills> {
  const key = `${app.number}/${revision}`;
  const known = writing.get(key);
  if (known) return known;
  const written = writeSkills(context, app).finally(() => writing.delete(key));
  writing.set(key, written);
  return written;
}

async function writeSkills(context: SkillsContext, app: App): Promise<Skills> {
  const { revision, content } = await transaction(context.pool, (tx) => readContent(tx, app, baseUrlOf(context)), {
    isolation: 'repeatable read',
    readOnly: true,
  });
  const markdown = `${firstLine(context, app.appId, revision)}\n${await runSliced(skillsMarkdown(content))}`;
  const file = fileOf(context, app.number);
  const fresh = `${file}.${randomUUID()}`;
  await mkdir(context.skillsDirectory, { recursive: true });
  try {
    await writeFile(fresh, markdown);
    await rename(fresh, file);
  } catch (error) {
    await rm(fresh, { force: true });
    // On a full disk the text is still returned.
    context.log.warn({ err: error, app: app.appId }, 'a skills document could not be written');
  }
  return { markdown, revision: revision.toString() };
}
