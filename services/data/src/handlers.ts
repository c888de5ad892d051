import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { Call, Handlers } from '@granary/shared/rpc/types';
import type { StorageMonitor } from '@granary/shared/health/storage-monitor';
import { createKey, findValidKeys, listKeys, regenerateKey, revokeKey, verifyKey } from './apps/app-keys';
import { useSignature } from './apps/used-signatures';
import {
  createApplication,
  deleteApplication,
  getApplication,
  getAppStats,
  listApplications,
  updateApplication,
} from './apps/applications';
import {
  createCollection,
  deleteCollection,
  getCollection,
  getCollectionStats,
  listCollections,
  setRetention,
  updateCollection,
} from './collections/collections';
import type { ReadAccess } from './catalog/collection';
import type { DerivedRemovals } from './usage/document-removal';
import type { Committer } from './commit/committer';
import { closeWrite } from './commit/held-writes';
import { runBatch } from './writes/batch';
import { changeDocument } from './writes/change-document';
import { eraseDocument } from './writes/erase-document';
import { getCommit } from './writes/get-commit';
import { storeDocuments } from './writes/store';
import { commitUpload, commitUploadUnderId } from './writes/upload';
import { validateDocuments } from './writes/validate';
import { listIndexes } from './collections/index-listing';
import { createIndex, deleteIndex, getIndex, rebuildIndex } from './collections/indexes';
import { getOperationPrices } from './collections/operation-prices';
import { getWritePrices } from './collections/write-prices';
import { rotateDataKey } from './collections/rotate-key';
import { createRelation } from './collections/relations';
import { createQuery, deleteQuery, getQuery, listQueries, type QueryLookup } from './queries/saved-queries';
import { getOpenapi } from './openapi/openapi';
import { deleteDataset, getDataset, listDatasets, putDataset, type DatasetContext } from './datasets/datasets';
import { getSkills, putSkills, type SkillsContext } from './skills/skills';
import { committerFor, type WriteContext } from './commit/tracing';
import type { UsagePublisher } from './usage/publisher';
import { changeView } from './views/change-view';
import { createView, deleteView, getView, listViews, refreshView } from './views/views';
import type { EncryptionSettings } from './collections/encryption';
import type { QueriesNeeding } from './collections/index-needs';
import { exportPage } from './export/export-page';
import { importPart } from './imports/import-part';
import { getTask } from './imports/import-task';
import { createImport, deleteImport, getImport, listImportErrors, listImports } from './imports/imports';
import { createFeedToken, openFeedToken } from './feed/feed-tokens';
import { readChanges, type FeedContext } from './feed/read-changes';
import { runQuery } from './reads/run-query';
import { readView } from './reads/read-view';
import { commitProof } from './reads/commit-proof';
import { getDocument } from './reads/get-document';
import { listCommits } from './reads/list-commits';
import { explainQuery } from './reads/explain-query';
import { listDocuments } from './reads/list-documents';
import { optimizeCollection } from './reads/optimize-collection';
import { readCollection } from './reads/read-collection';

export interface HandlerContext extends SkillsContext, FeedContext, DatasetContext, EncryptionSettings {
  /** Keeps derived rows right when documents are erased. */
  derived: DerivedRemovals;
  queries: QueryLookup;
  committer: Committer;
  usage: UsagePublisher;
  /** The read access of collections and views created without an access policy. */
  defaultRead: ReadAccess;
  /** Names the predefined queries that need an index. */
  queriesNeeding: QueriesNeeding;
  storage: Pick<StorageMonitor, 'refuseWhenFull'>;
  /** Called after a change that may have put a job into the queue. */
  wakeWorker: () => void;
}

type Handler<Q, T> = (request: Q, call: Call) => Promise<T>;

/** Functions that handle a method have this shape; those that write take a WriteContext instead. */
type Handling<Q, T> = (context: HandlerContext, request: Q, call: Call) => Promise<T>;

/** The ways in which a function becomes the handler of a method. */
function waysOf(context: HandlerContext) {
  const plainly =
    <Q, T>(handle: Handling<Q, T>): Handler<Q, T> =>
    (request, call) =>
      handle(context, request, call);

  /** Wraps a change of an app's catalog, which may also have queued a job. */
  const changingCatalog =
    <Q extends { appId: string }, T>(handle: Handling<Q, T>): Handler<Q, T> =>
    async (request, call) => {
      try {
        return await handle(context, request, call);
      } finally {
        context.readers.forget(request.appId);
        context.queries.forget(request.appId);
        context.headSignals.mark(request.appId);
        context.wakeWorker();
      }
    };

  /** Wraps a handler that needs disk space. Changes that free it, or restrict access, are accepted on a full disk. */
  const needingSpace =
    <Q, T>(handler: Handler<Q, T>): Handler<Q, T> =>
    async (request, call) => {
      context.storage.refuseWhenFull();
      return handler(request, call);
    };

  /** Wraps a write and gives it a committer that belongs to the trace of the call. */
  const writing =
    <Q, T>(handle: (writes: WriteContext, request: Q) => Promise<T>): Handler<Q, T> =>
    (request, call) =>
      handle({ pool: context.pool, committer: committerFor(context.committer, context.usage, call) }, request);

  /** Wraps a function that returns JSON text. */
  const asJson =
    <Q>(handle: Handling<Q, Buffer>): Handler<Q, { json: Buffer }> =>
    async (request, call) => ({ json: await handle(context, request, call) });

  return { plainly, changingCatalog, needingSpace, writing, asJson };
}

type Ways = ReturnType<typeof waysOf>;

/** Every method of the service. */
export function dataHandlers(context: HandlerContext): Handlers<DataDefinition> {
  const ways = waysOf(context);
  return { ...storedHandlers(ways), ...derivedHandlers(ways) };
}

/** Applications with their keys, collections, documents and commits. */
function storedHandlers({ plainly, changingCatalog, needingSpace, writing, asJson }: Ways) {
  return {
    createApplication: needingSpace(plainly(createApplication)),
    getApplication: plainly(getApplication),
    listApplications: plainly(listApplications),
    updateApplication: plainly(updateApplication),
    deleteApplication: changingCatalog(deleteApplication),
    verifyKey: plainly(verifyKey),
    createKey: plainly(createKey),
    regenerateKey: plainly(regenerateKey),
    listKeys: plainly(listKeys),
    revokeKey: plainly(revokeKey),
    useSignature: plainly(useSignature),

    createCollection: needingSpace(changingCatalog(createCollection)),
    getCollection: plainly(getCollection),
    listCollections: plainly(listCollections),
    updateCollection: changingCatalog(updateCollection),
    deleteCollection: changingCatalog(deleteCollection),
    getAppStats: plainly(getAppStats),
    getCollectionStats: plainly(getCollectionStats),
    setRetention: changingCatalog(setRetention),
    validateDocuments: asJson(validateDocuments),

    store: writing(storeDocuments),
    commitUpload: writing(commitUpload),
    commitUploadUnderId: writing(commitUploadUnderId),
    getDocument: plainly(getDocument),
    changeDocument: writing(changeDocument),
    eraseDocument: changingCatalog(eraseDocument),
    batch: writing(runBatch),
    listCommits: plainly(listCommits),
    readChanges: plainly(readChanges),
    createFeedToken: plainly(createFeedToken),
    openFeedToken: plainly(openFeedToken),
    findValidKeys: plainly(findValidKeys),
    exportPage: plainly(exportPage),
    createImport: needingSpace(plainly(createImport)),
    getImport: plainly(getImport),
    listImports: plainly(listImports),
    importPart: needingSpace(writing(importPart)),
    listImportErrors: asJson(listImportErrors),
    deleteImport: plainly(deleteImport),
    commitProof: asJson(commitProof),
    getCommit: plainly(getCommit),
    closeWrite: plainly(closeWrite),
    listDocuments: asJson(listDocuments),
    explainQuery: asJson(explainQuery),
    optimizeCollection: asJson(optimizeCollection),
    readCollection: plainly(readCollection),
  };
}

/** The handlers for all that is made of collections: indexes, views, queries, texts, and the jobs that make them. */
function derivedHandlers({ plainly, changingCatalog, needingSpace, asJson }: Ways) {
  return {
    createIndex: needingSpace(changingCatalog(createIndex)),
    listIndexes: plainly(listIndexes),
    getIndex: plainly(getIndex),
    rebuildIndex: needingSpace(changingCatalog(rebuildIndex)),
    rotateDataKey: needingSpace(changingCatalog(rotateDataKey)),
    deleteIndex: changingCatalog(deleteIndex),
    createRelation: needingSpace(changingCatalog(createRelation)),
    getOperationPrices: plainly(getOperationPrices),
    getWritePrices: plainly(getWritePrices),

    createView: needingSpace(changingCatalog(createView)),
    changeView: needingSpace(changingCatalog(changeView)),
    listViews: plainly(listViews),
    getView: plainly(getView),
    deleteView: plainly(deleteView),
    refreshView: needingSpace(changingCatalog(refreshView)),
    readView: plainly(readView),

    createQuery: needingSpace(changingCatalog(createQuery)),
    listQueries: plainly(listQueries),
    getQuery: plainly(getQuery),
    deleteQuery: changingCatalog(deleteQuery),
    runQuery: plainly(runQuery),

    listDatasets: plainly(listDatasets),
    getDataset: plainly(getDataset),
    putDataset: needingSpace(plainly(putDataset)),
    deleteDataset: plainly(deleteDataset),

    getSkills: plainly(getSkills),
    putSkills: needingSpace(plainly(putSkills)),

    getOpenapi: asJson(getOpenapi),

    getJob: plainly(getTask),
  };
}
