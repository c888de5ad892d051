import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid, notFound, ServiceError } from '@granary/shared/errors';
import type { PutSkillsRequest } from '@granary/shared/gen/granary/data/v1/PutSkillsRequest';
import type { Skills } from '@granary/shared/gen/granary/data/v1/Skills';
import { readJson, toPlain } from '@granary/shared/json/value';
import type { Logger } from '@granary/shared/logger';
import { execute, row, rows, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { APP_NOT_FOUND, findApp } from './catalog';
import { changingApp } from './collections';
import { growCatalogRevision } from './head';
import { isPrivateQuery, queriesWithSource } from './queries';
import { ownerPartOf, skillsMarkdown, type SkillsContent } from './query/skills-markdown';

/** Bytes of the owner's part, at most. */
export const skillsBytesMax = 256 * 1024;
/** Grows when the generated text changes its form, so that files of older releases are written again. */
const formVersion = 1;
/** Things of one kind that the document describes; more are only counted. */
const describedMax = 200;

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
  return writeSkills(context, app);
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
  const app = await changingApp(context.pool, appId, async (tx, owned) => {
    await execute(
      tx,
      sql`update application set skills_owner_part = ${ownerPartOf(markdown)}, updated_at = clock_timestamp() where number = ${owned.number}`,
    );
    await growCatalogRevision(tx, owned.number);
    return owned;
  });
  return writeSkills(context, app);
}

/** By the number of the app: nothing of a caller's reaches the file system. */
const fileOf = (context: SkillsContext, appNumber: bigint): string => join(context.skillsDirectory, `${appNumber}.md`);

const baseUrlOf = ({ publicUrl }: SkillsContext): string => publicUrl.replace(/\/+$/, '');

const firstLine = (context: SkillsContext, appId: string, revision: bigint): string =>
  `<!-- ${appId}, revision ${revision}, form ${formVersion}, ${baseUrlOf(context)} -->`;

async function writeSkills(context: SkillsContext, app: { number: bigint; appId: string }): Promise<Skills> {
  const { revision, content } = await transaction(context.pool, (tx) => readContent(tx, context, app), {
    isolation: 'repeatable read',
    readOnly: true,
  });
  const markdown = `${firstLine(context, app.appId, revision)}\n${skillsMarkdown(content)}`;
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

interface IndexRow {
  collection: string;
  field_name: string;
  index_type: string;
}

/** The app was deleted since it was looked up. */
const noSuchApp = (appId: string) => notFound(APP_NOT_FOUND, `There is no app ${appId}`);

async function readContent(
  tx: Queryable,
  context: SkillsContext,
  app: { number: bigint; appId: string },
): Promise<{ revision: bigint; content: SkillsContent }> {
  const found = await row<{ revision: bigint; name: string; description: string; owner_part: string }>(
    tx,
    sql`select h.catalog_revision as revision, a.name, a.description, a.skills_owner_part as owner_part
        from application a join head h on h.app_number = a.number where a.number = ${app.number}`,
  );
  if (!found) throw noSuchApp(app.appId);
  const collections = await rows<{ name: string; read_access: string; total: bigint }>(
    tx,
    sql`select name, read_access, count(*) over () as total from collection
        where app_number = ${app.number} and deleted_at is null order by name limit ${describedMax}`,
  );
  const indexes = await rows<IndexRow>(
    tx,
    sql`select c.name as collection, unnest(coalesce(i.fields, array[i.field_name])) as field_name, i.index_type
        from document_index i join collection c on c.number = i.collection_number
        where i.app_number = ${app.number} and i.status <> 'failed' and c.deleted_at is null order by c.name, i.number
        limit ${describedMax * 10}`,
  );
  const views = await rows<{
    name: string;
    sources: string[];
    read_access: string;
    variables_text: string;
    total: bigint;
  }>(
    tx,
    sql`select name, source_collections as sources, read_access, variables_text, count(*) over () as total from view
        where app_number = ${app.number} order by name limit ${describedMax}`,
  );
  const queries = await rows<{
    name: string;
    source: string;
    description: string;
    is_private: boolean;
    parameters_text: string;
    total: bigint;
  }>(
    tx,
    sql`select q.name, source_collection as source, description, parameters_text, count(*) over () as total,
          ${isPrivateQuery} as is_private
        from ${queriesWithSource}
        where q.app_number = ${app.number} order by q.name limit ${describedMax}`,
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
        variables: Object.entries(plainOf(variables_text) as Record<string, string>),
      })),
      queries: queries.map(({ name, source, description, is_private: isPrivate, parameters_text }) => ({
        name,
        source,
        description,
        isPrivate,
        parameters: (plainOf(parameters_text) as Array<{ name: string; field_path: string; required?: boolean }>).map(
          (parameter) => ({
            name: parameter.name,
            field: parameter.field_path,
            isRequired: parameter.required === true,
          }),
        ),
      })),
      undescribed: more(collections) + more(views) + more(queries),
    },
  };
}

const more = (described: ReadonlyArray<{ total: bigint }>): number =>
  Number(described[0]?.total ?? 0n) - described.length;

const plainOf = (text: string): unknown => toPlain(readJson(Buffer.from(text), { maxDepth: 64 }));
