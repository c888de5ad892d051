import { invalid, notFound } from '@granary/shared/errors';
import type { ExportPageRequest } from '@granary/shared/gen/granary/data/v1/ExportPageRequest';
import type { ExportPageResponse } from '@granary/shared/gen/granary/data/v1/ExportPageResponse';
import { row, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { Call } from '@granary/shared/rpc/types';
import { appNotFound, findApp } from '../catalog/app';
import { COLLECTION_NOT_FOUND, type CollectionRef } from '../catalog/collection';
import { noSuchCollection } from '../catalog/near-collection';
import { commitsTable, CURSOR_AHEAD } from '../chain/commit-log';
import { storedFilter } from '../query/execute/encrypted-read';
import { withFreshSource } from '../query/execute/read-page';
import { AppDatabases } from '../query/execute/read-scheduler';
import { hintUnknownFields } from '../query/execute/unknown-fields';
import { isAll, type Condition } from '../query/language/condition';
import { parseQuery } from '../query/language/filter';
import { parseSelect, readJsonText } from '../query/language/paging';
import { invalidQuery } from '../query/language/query-error';
import { documentsRelation, presentDocuments } from '../query/plan/relation';
import { lookUpCollection, type ReadContext } from '../reads/read-context';
import { linesOf, type LineOptions } from './lines';
import { behindAllVersions, readVersionsAt, type Moment, type ScanOptions } from './versions-at';

/** A page scans so many documents or versions, or so many bytes of them, whether they match or not. */
const scannedMax = { rows: 2_000, bytes: 1024 * 1024 };

/**
 * Reads a page of an export: the documents of a collection as they were at a height, in the order of their ids. Nothing
 * is held between pages: each reads the versions of that height again. Throws COLLECTION_NOT_FOUND, INVALID_QUERY,
 * LIMIT_EXCEEDED, CURSOR_AHEAD.
 */
export async function exportPage(
  context: ReadContext,
  request: ExportPageRequest,
  call: Pick<Call, 'signal'>,
): Promise<ExportPageResponse> {
  const find = parseFilter(request.find);
  const projection = parseSelect(request.select.length === 0 ? null : readJsonText(request.select, 'select'));
  return await withFreshSource(async (isRepeated) => {
    const collection = await findExported(context, request, isRepeated);
    const moment = await readMoment(context.fast, collection, request.height);
    const db = new AppDatabases(context, { appId: request.appId, mayReadPrivate: true }, call.signal);
    const relation = documentsRelation(collection, { includeHistory: true, includeDeleted: true });
    const scan: ScanOptions = {
      filter: storedFilter(relation, await db.resolve(find), true),
      after: positionOf(request.after),
      hasHistory: request.includeHistory,
      hasDeleted: request.includeDeleted,
      max: scannedMax,
    };
    const page = await readVersionsAt(db.pool, collection, relation, moment, scan);
    const lines: LineOptions = { relation, projection, hasHistory: request.includeHistory };
    const response = {
      height: moment.height.toString(),
      collectionNumber: collection.number.toString(),
      lines: await linesOf(context.fast, collection, moment, page, lines),
      last: page.last ? { id: page.last.id, version: page.last.version.toString() } : null,
      fields: [],
      hints: [],
    };
    if (request.collectionNumber !== undefined) return response;
    const fields = [...(collection.schema?.fields.keys() ?? [])];
    if (isAll(find) || response.lines.length > 0) return { ...response, fields };
    const present = documentsRelation(collection, presentDocuments);
    const hints = await hintUnknownFields(db.pool, present, find, true);
    return { ...response, fields, hints: hints.map(({ message }) => message) };
  });
}

function parseFilter(text: Buffer): Condition {
  const { find, joins } = parseQuery(text.length === 0 ? null : readJsonText(text, 'find'));
  if (joins.length > 0) throw invalidQuery('find', 'cannot have joins: an export is of one collection');
  return find;
}

/** Throws COLLECTION_NOT_FOUND, also where another collection has the name by now. */
async function findExported(
  context: ReadContext,
  { appId, collection: name, collectionNumber }: ExportPageRequest,
  isRepeated: boolean,
): Promise<CollectionRef> {
  const collection = await lookUpCollection(context, appId, name, isRepeated);
  if (!collection) throw await noSuchCollection(context.fast, await findApp(context.fast, appId), name);
  if (collectionNumber !== undefined && collectionNumber !== collection.number.toString()) {
    throw notFound(COLLECTION_NOT_FOUND, `The collection ${name} was deleted during the export, and made again`);
  }
  return collection;
}

/** The moment after a commit, the last one where none is named. Throws CURSOR_AHEAD, COLLECTION_NOT_FOUND. */
async function readMoment(
  db: Queryable,
  { appNumber, appId, name, number }: CollectionRef,
  height: string | undefined,
): Promise<Moment> {
  const moment = await row<{ head: bigint; height: bigint; ordinal: bigint; is_other: boolean }>(
    db,
    sql`select h.height as head, coalesce(${height ?? null}::int8, h.height) as height, coalesce(c.ordinal, c.height, 0) as ordinal,
          exists (select from collection k where k.app_number = ${appNumber} and k.name = ${name} and k.number <> ${number}
            and k.created_at <= c.at and k.deleted_at > c.at) as is_other
        from head h left join ${commitsTable(appNumber)} c on c.height = coalesce(${height ?? null}::int8, h.height)
        where h.app_number = ${appNumber}`,
  );
  if (!moment) throw appNotFound(appId);
  if (moment.is_other) {
    throw notFound(COLLECTION_NOT_FOUND, `The collection ${name} of that height was deleted, and made again since`);
  }
  if (moment.height <= moment.head) return moment;
  const message = `is beyond the last commit, which has the height ${moment.head}`;
  throw invalid(`The height ${message}`, { at: [message] }, CURSOR_AHEAD);
}

const positionOf = (position: ExportPageRequest['after']): ScanOptions['after'] =>
  position
    ? { id: position.id, version: position.version === '0' ? behindAllVersions : BigInt(position.version) }
    : undefined;
