import { ServiceError } from '@granary/shared/errors';
import { newTicket } from '@granary/shared/ids';
import { rows, type Pool } from '@granary/shared/postgres/pool';
import { join, sql } from '@granary/shared/postgres/sql';
import { findApp, type App } from '../catalog/app';
import { findCollection, type CollectionRef } from '../catalog/collection';
import { requireKeys } from '../catalog/encrypted-fields';
import { documentsTable } from '../catalog/table-names';
import type { Committer } from '../commit/committer';
import { storedKeyPrefix } from '../encryption/field-cipher';
import { JobInterruptedError, type JobContext, type JobFunction, type Report } from '../jobs/queue';
import type { DataKey } from '../encryption-keys/data-keys';
import { ChangeWrite } from './change-write';
import type { DocumentChange } from './document-change';

/** Documents of one commit, and bytes of their texts before the last one. */
const batchDocuments = 200;
const batchBytes = 8 * 1024 * 1024;

interface Row {
  id: string;
  version: bigint;
}

/** Counts of the documents that an earlier key had encrypted, by what became of them. */
interface Counts {
  rewritten: number;
  /** They do not fit the schema any more, so they cannot be written as they are. */
  left: number;
}

/**
 * The job behind the rotation of the data key of an app: writes each present document that an earlier key has encrypted
 * anew, which the latest key then encrypts. Each is a version like any other; a document that is changed meanwhile is
 * encrypted by that write.
 */
export const reEncryptJob =
  (committer: Pick<Committer, 'submit'>): JobFunction =>
  async (context, payload, report) => {
    const app = await findApp(context.pool, String(payload['app_id']));
    const names = await rows<{ name: string }>(
      context.pool,
      sql`select distinct c.name from encrypted_field e join collection c on c.number = e.collection_number
          where e.app_number = ${app.number} and c.deleted_at is null order by c.name`,
    );
    const counts = { rewritten: 0, left: 0 };
    for (const [index, { name }] of names.entries()) {
      const collection = await findCollection(context.pool, app, name);
      if (collection?.encrypted) await reEncrypt(committer, context, app, collection, counts, report);
      await report((index + 1) / (names.length + 1), `${name}: ${counts.rewritten} documents written anew so far`);
    }
    return { documents: counts.rewritten, left: counts.left };
  };

async function reEncrypt(
  committer: Pick<Committer, 'submit'>,
  { pool, stopping }: JobContext,
  app: App,
  collection: CollectionRef,
  counts: Counts,
  report: Report,
): Promise<void> {
  let last = '';
  for (;;) {
    if (stopping.aborted) throw new JobInterruptedError('the service stops');
    const documents = await encryptedBefore(pool, collection, last);
    if (documents.length === 0) return;
    last = documents.at(-1)!.id;
    const write = new ChangeWrite(
      newTicket('c', app.number),
      undefined,
      documents.map((row) => rewriteOf(collection, row)),
      { isPaid: true, mayReadPrivate: true },
      'separately',
    );
    try {
      await committer.submit(app, write);
    } catch (error) {
      // All were refused.
      if (!(error instanceof ServiceError) || !write.isRefused) throw error;
    }
    const left = [...write.refusals.values()].filter(({ reason }) => !changedMeanwhile.has(reason)).length;
    counts.left += left;
    counts.rewritten += documents.length - write.refusals.size;
    // Its lease is renewed with it.
    await report(0, `${collection.name}: ${counts.rewritten} documents written anew so far`);
  }
}

const changedMeanwhile: ReadonlySet<string> = new Set(['PRECONDITION_FAILED', 'DOCUMENT_NOT_FOUND']);

const nothing = Buffer.from('{}');

/** A merge patch of nothing, on the version that was found. */
const rewriteOf = ({ name: collection }: CollectionRef, { id, version }: Row): DocumentChange => ({
  collection,
  id,
  kind: 'merge',
  body: nothing,
  path: '',
  ifMatch: { any: false, numbers: [version] },
});

/** Returns the data keys of the app. Where they cannot be unwrapped now, it interrupts the job, which goes on later. */
function keysOf({ encrypted }: CollectionRef): readonly DataKey[] {
  try {
    return requireKeys(encrypted!);
  } catch (error) {
    throw new JobInterruptedError(`no key for encrypted fields: ${String(error)}`);
  }
}

/** The next documents by id that hold a value of an earlier key. */
function encryptedBefore(pool: Pool, collection: CollectionRef, after: string): Promise<Row[]> {
  const earlier = keysOf(collection).slice(0, -1);
  if (earlier.length === 0) return Promise.resolve([]);
  const holds = join(
    earlier.map(({ version }) => sql`strpos(body, ${storedKeyPrefix(version)}) > 0`),
    ' or ',
  );
  return rows<Row>(
    pool,
    sql`select id, version from
          (select id, version, sum(bytes) over (order by id) - bytes as bytes_before from
            (select id, version, octet_length(body) as bytes from ${documentsTable(collection)}
             where id > ${after} and not deleted and (${holds}) order by id limit ${batchDocuments}) f) b
        where bytes_before < ${batchBytes} order by id`,
  );
}
