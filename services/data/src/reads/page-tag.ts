import { hash, randomBytes } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { PageResponse } from '@granary/shared/gen/granary/data/v1/PageResponse';
import type { ReadRequest } from '@granary/shared/gen/granary/data/v1/ReadRequest';
import { namesCurrent } from '@granary/shared/http/etag';
import { sql, trusted } from '@granary/shared/postgres/sql';
import { version } from '@granary/shared/version';
import type { CollectionRef } from '../catalog/collection';
import { collectionState } from '../catalog/collection-state';
import { TextsReader } from '../query/execute/texts-reader';
import { readPage, type ReadOptions } from '../query/execute/read-page';
import type { AppDatabases } from '../query/execute/read-scheduler';
import { documentsRelation, presentDocuments } from '../query/plan/relation';
import type { ReadContext } from './read-context';

/** The sources of a page, as they were looked up before it is read. */
export interface PageSources {
  appNumber: bigint;
  /** The collections whose documents it shows, or computes its rows from. */
  collections: readonly CollectionRef[];
  /** Whether its conditions name data sets or countries. */
  hasReferences: boolean;
  /** The state of the view whose rows it shows; empty where it shows documents. */
  viewState: string;
  /** The revision of the catalog that its definition was read at, where it has one. */
  definitionRevision?: bigint;
}

/**
 * A page that was read, with the collection that it shows as that was looked up last, and the state of its documents.
 */
export interface StatedPage {
  json: Buffer;
  state: string | undefined;
  revision?: bigint;
}

/** The state of all that a page shows: the revision of the catalog, and what documents, data sets and networks are. */
interface SourcesState {
  revision: string;
  documents: string;
}

/**
 * Reads a page and its entity tag; without the page where the caller has it already, see `ifNoneMatch`.
 *
 * A tag is made of the states of all that the page shows. Each was read at or before the moment that the page shows it,
 * so a page may be newer than its tag, and never older. No state ever comes back. So where the states, read again in
 * the database while a request is served, still make the tag that the caller has, nothing has been written since, and
 * the page would be the same. A page of an older catalog, from a cache, has the revision of that catalog in its tag.
 *
 * `read` gets whether the states were read before, which its counters may then not be older than.
 */
export async function readTagged(
  db: ReadContext,
  request: Pick<ReadRequest, 'ifNoneMatch' | 'mayReadPrivate'>,
  sources: PageSources,
  read: (isAfterStates: boolean) => Promise<StatedPage>,
): Promise<PageResponse> {
  const { collections, hasReferences, viewState } = sources;
  // The statement of a page can tell the state of one collection only.
  const isBeforehand = collections.length !== 1 || hasReferences || viewState !== '';
  const { ifNoneMatch } = request;
  const before = ifNoneMatch !== undefined || isBeforehand ? await readStates(db, sources) : undefined;
  if (before && ifNoneMatch !== undefined) {
    const etag = tagOf(request, before, viewState);
    if (namesCurrent(ifNoneMatch, etag)) return { json: noPage, etag };
  }
  const page = await read(before !== undefined);
  if (!isBeforehand) return { json: page.json, etag: tagOfPage(request, sources, page) };
  const { documents } = before!;
  return { json: page.json, etag: tagOf(request, { revision: oldestRevision(sources, page), documents }, viewState) };
}

/** The last tag that was made for a collection, and what of. */
interface KnownTag {
  mayReadPrivate: boolean;
  state: string;
  revision: bigint | undefined;
  definitionRevision: bigint | undefined;
  etag: string;
}

const knownTags = new WeakMap<CollectionRef, KnownTag>();

/** The tag of a page of one collection. Most are the same as the last one. */
function tagOfPage(
  request: Pick<ReadRequest, 'mayReadPrivate'>,
  sources: PageSources,
  { state, revision }: StatedPage,
): string {
  // Where nobody knows the state, no later page is the same.
  if (state === undefined) return `W/"${randomBytes(16).toString('base64url')}"`;
  const { mayReadPrivate } = request;
  const { definitionRevision } = sources;
  const collection = sources.collections[0]!;
  const previous = knownTags.get(collection);
  if (
    previous?.state === state &&
    previous.mayReadPrivate === mayReadPrivate &&
    previous.revision === revision &&
    previous.definitionRevision === definitionRevision
  ) {
    return previous.etag;
  }
  const states = { revision: oldestRevision(sources, { revision }), documents: state };
  const etag = tagOf(request, states, sources.viewState);
  knownTags.set(collection, { mayReadPrivate, state, revision, definitionRevision, etag });
  return etag;
}

const noPage = Buffer.alloc(0);

/** The view state of sources without a view. */
export const noView = { viewState: '' } as const;

/** The documents that public pages show, for pages that tell their state. */
export const statedDocuments = { ...presentDocuments, withState: true } as const;

/** A page with the counters of a collection, which was looked up for it: its state is that of the counters. */
export async function readCounted(
  databases: AppDatabases,
  collection: CollectionRef,
  options: ReadOptions,
): Promise<StatedPage> {
  const source = documentsRelation(collection, presentDocuments);
  const { json } = await readPage(databases, source, options);
  return { json, state: collection.state, revision: collection.revision };
}

function oldestRevision(
  { collections, definitionRevision }: PageSources,
  { revision }: { revision?: bigint | undefined },
): string {
  let oldest = revision ?? definitionRevision;
  if (oldest !== undefined && definitionRevision !== undefined && definitionRevision < oldest)
    oldest = definitionRevision;
  for (const { revision: candidate } of collections) if (oldest === undefined || candidate < oldest) oldest = candidate;
  return oldest === undefined ? '' : oldest.toString();
}

const revisionOf = sql`(select h.catalog_revision from head h where h.app_number = ${trusted('$1::int8')})`;
const documentsOf = sql`(select string_agg(${collectionState(sql`c`)}, ',' order by c.number)
  from collection c where c.number = any(${trusted('$2::int8[]')}))`;
const referencesOf = sql`concat_ws('.', (select concat_ws('.', count(*), max(d.table_number)) from dataset d
  where d.app_number = ${trusted('$1::int8')}), (select encode(f.sha256, 'hex') from country_file f))`;
const statesOf = sql`select ${revisionOf}, ${documentsOf}`.compile().text;
const statesWithReferences = sql`select ${revisionOf}, concat_ws('/', ${documentsOf}, ${referencesOf})`.compile().text;

/** The states as they are in the database now. */
async function readStates(
  db: ReadContext,
  { appNumber, collections, hasReferences }: PageSources,
): Promise<SourcesState> {
  if (collections.length === 0 && !hasReferences) return { revision: '', documents: '' };
  const values = [appNumber, `{${collections.map(({ number }) => number).join(',')}}`];
  const text = hasReferences ? statesWithReferences : statesOf;
  const [revision, documents] = await db.multiplexer.read(text, values, new TextsReader(2));
  // The rows of a view are not computed from the catalog.
  return { revision: collections.length === 0 ? '' : revision!, documents: documents! };
}

/** Tags that are made again and again while nothing is written. */
const tags = new LRUCache<string, string>({ max: 1_000 });

/** Weak: a page of the same states has the same records, but is not made to be the same bytes. */
function tagOf(
  { mayReadPrivate }: Pick<ReadRequest, 'mayReadPrivate'>,
  { revision, documents }: SourcesState,
  viewState: string,
): string {
  const text = `${version}/${mayReadPrivate ? 'all' : 'public'}/${revision}/${documents}/${viewState}`;
  let tag = tags.get(text);
  if (tag === undefined) tags.set(text, (tag = `W/"${hash('sha256', text, 'base64url').slice(0, 22)}"`));
  return tag;
}
