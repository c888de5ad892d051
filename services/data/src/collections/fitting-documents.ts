import { runSliced, type Task } from '@granary/shared/concurrency/time-slicing';
import { conflict, ServiceError, unavailable } from '@granary/shared/errors';
import { row, type Queryable } from '@granary/shared/postgres/pool';
import { empty, sql } from '@granary/shared/postgres/sql';
import type { Call } from '@granary/shared/rpc/types';
import type { App } from '../catalog/app';
import { findCollection, type CollectionRef } from '../catalog/collection';
import { commitsTable } from '../chain/commit-log';
import { misfitFinder, type FindMisfit, type WantedType } from '../documents/misfits';
import { batchRows, documentBatch, type StoredDocument } from '../tables/document-batch';

export const DOCUMENTS_DO_NOT_FIT = 'DOCUMENTS_DO_NOT_FIT';

/** Ids that a refusal shows. */
const idsMax = 5;
/** How often a check follows the writes that were committed meanwhile, before the rest is checked under the lock. */
const roundsMax = 5;
/** How often a change begins anew because the collection became another one while it was checked. */
const attemptsMax = 3;
/** How long documents are counted for a change that is made whatever their number is. */
const countingMs = 3_000;

/** The present documents whose values do not have the wanted types. */
export interface Misfits {
  count: number;
  /** The ids of the first ones. */
  ids: string[];
  fields: Set<string>;
}

/** The types that a change wants stored documents to have. */
export interface FitQuestion {
  collection: string;
  /** The types that the change wants of a collection as it is; none where nothing need be checked. */
  wantedOf: (collection: CollectionRef) => readonly WantedType[];
  /** Whether the change is made although documents do not fit. */
  isForced: boolean;
}

/** The outcome of a check before the lock. */
interface Checked {
  /** The collection and the types that were checked. Under the lock the change must still want these. */
  subject: string;
  /** The commit up to which it holds. */
  height: bigint;
  misfits: Misfits;
}

/** The collection has become another one, or another change of its types was made, while its documents were checked. */
class OutdatedCheckError extends ServiceError {
  constructor() {
    super('UNAVAILABLE', 'UNAVAILABLE', 'The collection has just changed, while its documents were checked; try again');
  }
}

/** Decides under the lock of the app. Returns how many documents do not fit. Throws DOCUMENTS_DO_NOT_FIT. */
export type AssertFit = (tx: Queryable, collection: CollectionRef) => Promise<number>;

/**
 * Makes a change for which the stored documents are to have certain types. All of them are read in batches without a
 * lock, so that no writer waits; under the lock of the app `change` calls its argument, which reads only those that
 * were written since. A forced change only counts them, for three seconds at most. Throws DOCUMENTS_DO_NOT_FIT and what
 * `change` throws.
 */
export async function changeTypes<T>(
  db: Queryable,
  app: App,
  question: FitQuestion,
  signal: Call['signal'],
  change: (assertFit: AssertFit) => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    const checked = await check(db, app, question, signal);
    try {
      return await change((tx, collection) => decide(tx, collection, question, checked));
    } catch (error) {
      if (!(error instanceof OutdatedCheckError) || attempt === attemptsMax) throw error;
    }
  }
}

/** Undefined where there is nothing to be checked. */
async function check(
  db: Queryable,
  app: App,
  { collection: name, wantedOf, isForced }: FitQuestion,
  signal: Call['signal'],
): Promise<Checked | undefined> {
  // Read first: what is committed later is checked again.
  let height = await heightOf(db, app);
  const collection = await findCollection(db, app, name);
  const wantedTypes = collection ? wantedOf(collection) : [];
  if (!collection || wantedTypes.length === 0) return undefined;
  const subject = subjectOf(collection, wantedTypes);
  const find = misfitFinder(collection, wantedTypes);
  const endMs = isForced ? Date.now() + countingMs : Infinity;
  const goesOn = () => {
    if (signal.aborted) throw unavailable('The request ended before all documents were checked');
    return Date.now() < endMs;
  };
  const misfits = noMisfits();
  await collect(db, collection, find, misfits, { goesOn });
  for (let round = 0; round < roundsMax && misfits.count === 0 && !isForced; round += 1) {
    const next = await heightOf(db, app);
    const read = await collect(db, collection, find, misfits, { goesOn, writtenAfter: height });
    height = next;
    if (read < batchRows) break;
  }
  return { subject, height, misfits };
}

async function decide(
  tx: Queryable,
  collection: CollectionRef,
  { wantedOf, isForced }: FitQuestion,
  checked: Checked | undefined,
): Promise<number> {
  const wantedTypes = wantedOf(collection);
  if (wantedTypes.length === 0) return 0;
  if (checked?.subject !== subjectOf(collection, wantedTypes)) throw new OutdatedCheckError();
  const { misfits, height } = checked;
  if (isForced) return misfits.count;
  if (misfits.count === 0) {
    const find = misfitFinder(collection, wantedTypes);
    await collect(tx, collection, find, misfits, { goesOn: () => true, writtenAfter: height });
  }
  if (misfits.count === 0) return 0;
  throw doNotFit(misfits, wantedTypes);
}

const noMisfits = (): Misfits => ({ count: 0, ids: [], fields: new Set() });

const subjectOf = ({ number }: CollectionRef, wantedTypes: readonly WantedType[]): string =>
  JSON.stringify([
    number.toString(),
    ...wantedTypes.map(({ name, rule, allowsContainers }) => [name, rule, allowsContainers]),
  ]);

async function heightOf(db: Queryable, { number }: App): Promise<bigint> {
  return (await row<{ height: bigint }>(db, sql`select height from head where app_number = ${number}`))?.height ?? 0n;
}

/** Adds the misfits among present documents, or among those of commits above a height. Returns how many were read. */
async function collect(
  db: Queryable,
  collection: CollectionRef,
  find: FindMisfit,
  misfits: Misfits,
  { goesOn, writtenAfter }: { goesOn: () => boolean; writtenAfter?: bigint },
): Promise<number> {
  const { appNumber, name } = collection;
  const written =
    writtenAfter === undefined
      ? empty
      : sql`and id in (select unnest(ids) from ${commitsTable(appNumber)} where height > ${writtenAfter} and collection = ${name})`;
  let last = '';
  let read = 0;
  while (goesOn()) {
    const batch = await documentBatch(db, collection, last, sql`and not deleted ${written}`);
    if (batch.length === 0) break;
    await runSliced(judgeSteps(batch, find, misfits));
    last = batch.at(-1)!.id;
    read += batch.length;
  }
  return read;
}

/** Yields after each document. */
function* judgeSteps(batch: readonly StoredDocument[], find: FindMisfit, misfits: Misfits): Task<void> {
  for (const { id, body } of batch) {
    const field = find(Buffer.from(body));
    if (field !== undefined) {
      misfits.count += 1;
      misfits.fields.add(field);
      if (misfits.ids.length < idsMax) misfits.ids.push(id);
    }
    yield;
  }
}

function doNotFit({ count, ids, fields }: Misfits, wantedTypes: readonly WantedType[]): ServiceError {
  const types = wantedTypes
    .filter(({ name }) => fields.has(name))
    .map(({ name, rule }) => `${name} of type ${rule.type}`);
  const documents = count === 1 ? '1 document does' : `${count} documents do`;
  const shown = ids.map((id) => JSON.stringify(id)).join(', ');
  const more = count > ids.length ? ', …' : '';
  return conflict(
    DOCUMENTS_DO_NOT_FIT,
    `${documents} not have ${types.join(', ')}: ${shown}${more}. {"force": true} in the body makes the change all the same`,
    { count, ids },
  );
}
