import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid, notFound, ServiceError } from '@granary/shared/errors';
import type { PutSkillsRequest } from '@granary/shared/gen/granary/data/v1/PutSkillsRequest';
import type { Skills } from '@granary/shared/gen/granary/data/v1/Skills';
import type { Logger } from '@granary/shared/logger';
import { execute, row, rows, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { runSliced } from '@granary/shared/concurrency/time-slicing';
import { isPrivateQuery, queriesWithSource } from '../queries/saved-queries';
import { generatedBytesMax, ownerPartOf, skillsMarkdown, type SkillsContent } from './markdown';
import { APP_NOT_FOUND, findApp, type App } from '../catalog/app';
import { bumpCatalogRevision, withAppLock } from '../catalog/app-lock';

/** Bytes of the owner's part, at most. */
export const skillsBytesMax = 256 * 1024;
/** Grows when the generated text changes its form, so that files of older releases are written again. */
const formVersion = 2;
/** Collections, views or queries that are read to be described, and about the bytes of them; more are only counted. */
const describedMax = 200;
const describedBytesMax = generatedBytesMax;

export interface SkillsContext {
  pool: Pool;
  log: Logger;
  /** Where this copy of the service keeps the documents as files, one for each app. */
  skillsDirectory: string;
  /** What the examples call the service. */
  publicUrl: string;
}

/**
 * The skills document of an app, from its file when that shows the present state of the catalog; else the file is
 * written anew. Throws APP_NOT_FOUND.
 */
export async function getSkills(context: SkillsContext, appId: string): Promise<Skills> {
  const app = await findApp(context.pool, appId);
  const found = await row<{ revision: bigint }>(
    context.pool,
    sql`select catalog_revision as revision from head where app_number = ${app.number}`,
  );
  if (!found) throw noSuchApp(appId);
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

/** Sets the owner's part, which stands before the generated one. Throws APP_NOT_FOUND, SKILLS_TOO_LARGE. */
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

/** By the number of the app: nothing of a caller's reaches the file system. */
const fileOf = (context: SkillsContext, appNumber: bigint): string => join(context.skillsDirectory, `${appNumber}.md`);

const baseUrlOf = ({ publicUrl }: SkillsContext): string => publicUrl.replace(/\/+$/, '');

const firstLine = (context: SkillsContext, appId: string, revision: bigint): string =>
  `<!-- ${appId}, revision ${revision}, form ${formVersion}, ${baseUrlOf(context)} -->`;

/** Documents that are being written, by app and revision: those who ask at once share one. */
const writing = new Map<string, Promise<Skills>>();

/** The document of a revision that the caller has seen, or of a later one. */
function writeOnce(context: SkillsContext, app: App, revision: bigint): Promise<Skills> {
  const key = `${app.number}/${revision}`;
  const known = writing.get(key);
  if (known) return known;
  const written = writeSkills(context, app).finally(() => writing.delete(key));
  writing.set(key, written);
  return written;
}

async function writeSkills(context: SkillsContext, app: App): Promise<Skills> {
  const { revision, content } = await transaction(context.pool, (tx) => readContent(tx, context, app), {
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
    // A full disk keeps nobody from reading: the text is at hand.
    context.log.warn({ err: error, app: app.appId }, 'a skills document could not be written');
  }
  return { markdown, revision: revision.toString() };
}

/** The app was deleted since it was looked up. */
const noSuchApp = (appId: string) => notFound(APP_NOT_FOUND, `There is no app ${appId}`);

async function readContent(
  tx: Queryable,
  context: SkillsContext,
  app: App,
): Promise<{ revision: bigint; content: SkillsContent }> {
  const found = await row<{ revision: bigint; name: string; description: string; owner_part: string }>(
    tx,
    sql`select h.catalog_revision as revision, a.name, a.description, a.skills_owner_part as owner_part
        from application a join head h on h.app_number = a.number where a.number = ${app.number}`,
  );
  if (!found) throw noSuchApp(app.appId);
  const collections = await rows<CollectionRow>(
    tx,
    described(
      sql`name, read_access`,
      sql`collection where app_number = ${app.number} and deleted_at is null`,
      sql`name`,
      sql`octet_length(name)`,
    ),
  );
  const indexes = await rows<IndexRow>(
    tx,
    sql`select collection, field_name, index_type from (
          select f.*, sum(octet_length(f.field_name)) over (order by f.collection, f.number rows unbounded preceding) as bytes
          from (select c.name as collection, i.number, unnest(coalesce(i.fields, array[i.field_name])) as field_name, i.index_type
                from document_index i join collection c on c.number = i.collection_number
                where i.app_number = ${app.number} and i.status <> 'failed' and c.deleted_at is null) f) d
        where bytes <= ${describedBytesMax} order by collection, number limit ${describedMax * 10}`,
  );
  const views = await rows<ViewRow>(
    tx,
    described(
      sql`name, source_collections as sources, read_access, variables_text`,
      sql`view where app_number = ${app.number}`,
      sql`name`,
      sql`octet_length(variables_text)`,
    ),
  );
  const queries = await rows<QueryRow>(
    tx,
    described(
      sql`q.name, source_collection as source, description, parameters_text, ${isPrivateQuery} as is_private`,
      sql`${queriesWithSource} where q.app_number = ${app.number}`,
      sql`q.name`,
      sql`octet_length(description) + octet_length(parameters_text)`,
    ),
  );
  return {
    revision: found.revision,
    content: {
      appId: app.appId,
      name: found.name,
      description: found.description,
      ownerPart: found.owner_part,
      baseUrl: baseUrlOf(context),
      collections: collections.map(({ name, read_access }) => ({
        name,
        isPrivate: read_access === 'private',
        indexes: indexes
          .filter(({ collection }) => collection === name)
          .map(({ field_name, index_type }) => ({ field: field_name, type: index_type })),
      })),
      views: views.map(({ name, sources, read_access, variables_text }) => ({
        name,
        sources,
        isPrivate: read_access === 'private',
        variablesText: variables_text,
      })),
      queries: queries.map(({ name, source, description, is_private: isPrivate, parameters_text }) => ({
        name,
        source,
        description,
        isPrivate,
        parametersText: parameters_text,
      })),
      totals: { collections: totalOf(collections), views: totalOf(views), queries: totalOf(queries) },
    },
  };
}

/** The first entries of a kind by name, cut in Postgres to what can be described; each with the number of all. */
const described = (columns: Sql, from: Sql, name: Sql, bytes: Sql): Sql =>
  sql`select * from (
        select ${columns}, count(*) over () as total, row_number() over listed as place,
          sum(${bytes}) over (listed rows unbounded preceding) as bytes_so_far
        from ${from} window listed as (order by ${name})) d
      where place <= ${describedMax} and (bytes_so_far <= ${describedBytesMax} or place = 1) order by place`;

const totalOf = (entries: ReadonlyArray<{ total: bigint }>): number => Number(entries[0]?.total ?? 0n);

interface CollectionRow {
  name: string;
  read_access: string;
  total: bigint;
}

interface IndexRow {
  collection: string;
  field_name: string;
  index_type: string;
}

interface ViewRow {
  name: string;
  sources: string[];
  read_access: string;
  variables_text: string;
  total: bigint;
}

interface QueryRow {
  name: string;
  source: string;
  description: string;
  is_private: boolean;
  parameters_text: string;
  total: bigint;
}
