import { invalid, ServiceError } from '@granary/shared/errors';
import type { GetSkillsRequest } from '@granary/shared/gen/granary/data/v1/GetSkillsRequest';
import type { PutSkillsRequest } from '@granary/shared/gen/granary/data/v1/PutSkillsRequest';
import type { PutSkillsResponse } from '@granary/shared/gen/granary/data/v1/PutSkillsResponse';
import type { Skills } from '@granary/shared/gen/granary/data/v1/Skills';
import { execute } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { runSliced } from '@granary/shared/concurrency/time-slicing';
import { ownerPartOf, skillsMarkdown } from './markdown';
import { findApp, type App } from '../catalog/app';
import { bumpCatalogRevision, readCatalogRevision, withAppLockOnce } from '../catalog/app-lock';
import { readContent } from './content';
import {
  readDocument,
  writeDocument,
  type CatalogDocument,
  type DocumentsContext,
  type GeneratedText,
} from './kept-document';

/** Bytes of the owner's part, at most. */
export const skillsBytesMax = 256 * 1024;
/** Incremented when the form of the generated text changes, so that files of older releases are written again. */
const formVersion = 6;
export interface SkillsContext extends DocumentsContext {
  /** The address of the service in the examples. */
  publicUrl: string;
}

/**
 * The skills document of an app, as the catalog is now: without `mayReadPrivate` of what is public. Throws
 * APP_NOT_FOUND.
 */
export async function getSkills(context: SkillsContext, request: GetSkillsRequest): Promise<Skills> {
  const app = await findApp(context.pool, request.appId);
  return toSkills(await readDocument(context, app, skillsDocument(context, app, request.mayReadPrivate)));
}

/** Sets the owner's part, which precedes the generated one. Throws APP_NOT_FOUND, SKILLS_TOO_LARGE. */
export async function putSkills(context: SkillsContext, request: PutSkillsRequest): Promise<PutSkillsResponse> {
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
  const saved = await withAppLockOnce<PutSkillsResponse>(context.pool, request, async (tx, { number }) => {
    await execute(
      tx,
      sql`update application set skills_owner_part = ${ownerPartOf(markdown)}, updated_at = clock_timestamp() where number = ${number}`,
    );
    await bumpCatalogRevision(tx, number);
    const revision = await readCatalogRevision(tx, number);
    return { revision: revision!.toString() };
  });
  if (!saved.replayed) await writeDocument(context, skillsDocument(context, await findApp(context.pool, appId), true));
  return saved;
}

const toSkills = ({ text, revision }: GeneratedText): Skills => ({ markdown: text, revision: revision.toString() });

function skillsDocument({ pool, publicUrl }: SkillsContext, app: App, mayReadPrivate: boolean): CatalogDocument {
  const baseUrl = publicUrl.replace(/\/+$/, '');
  const headOf = (revision: bigint) => `<!-- ${app.appId}, revision ${revision}, form ${formVersion}, ${baseUrl} -->\n`;
  return {
    fileName: `${app.number}${mayReadPrivate ? '.all' : ''}.md`,
    headOf,
    generate: async () => {
      const { revision, content } = await transaction(pool, (tx) => readContent(tx, app, baseUrl, mayReadPrivate), {
        isolation: 'repeatable read',
        readOnly: true,
      });
      return { text: headOf(revision) + (await runSliced(skillsMarkdown(content))), revision };
    },
  };
}
