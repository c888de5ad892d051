import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { Call, Handlers } from '@granary/shared/rpc/types';
import type { StorageMonitor } from '@granary/shared/health/storage-monitor';
import { createKey, listKeys, regenerateKey, revokeKey, verifyKey } from './apps/app-keys';
import { useSignature } from './apps/used-signatures';
import {
  appStats,
  createApplication,
  deleteApplication,
  getApplication,
  listApplications,
  updateApplication,
} from './apps/applications';
import {
  collectionStats,
  createCollection,
  deleteCollection,
  getCollection,
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
import { commitUpload } from './writes/upload';
import { validateDocuments } from './writes/validate';
import { listIndexes } from './collections/index-listing';
import { createIndex, deleteIndex, getIndex, rebuildIndex } from './collections/indexes';
import { getOperationPrices } from './collections/operation-prices';
import { getWritePrices } from './collections/write-prices';
import { rotateDataKey } from './collections/rotate-key';
import { createRelation } from './collections/relations';
import { getJob } from './jobs/queue';
import { listingRowsMax } from './listings/listing';
import { createQuery, deleteQuery, getQuery, listQueries, type QueryLookup } from './queries/saved-queries';
import { getOpenapi } from './openapi/openapi';
import { deleteDataset, getDataset, listDatasets, putDataset, type DatasetContext } from './datasets/datasets';
import { getSkills, putSkills, type SkillsContext } from './skills/skills';
import { committerFor } from './commit/tracing';
import type { UsagePublisher } from './usage/publisher';
import { changeView } from './views/change-view';
import { createView, deleteView, getView, listViews, refreshView } from './views/views';
import type { RootKey } from './keys/root-key';
import { queriesNeeding } from './queries/index-use';
import { viewUsing } from './views/encrypted-sources';
import { runQuery } from './reads/run-query';
import { readView } from './reads/read-view';
import { commitProof } from './reads/commit-proof';
import { getDocument } from './reads/get-document';
import { listCommits } from './reads/list-commits';
import { explainQuery } from './reads/explain-query';
import { listDocuments } from './reads/list-documents';
import { optimizeCollection } from './reads/optimize-collection';
import type { ReadContext } from './reads/read-context';
import { readCollection } from './reads/read-collection';

export interface HandlerContext extends SkillsContext, ReadContext, DatasetContext {
  /** What is derived from documents that are erased. */
  derived: DerivedRemovals;
  queries: QueryLookup;
  committer: Committer;
  usage: UsagePublisher;
  /** Who may read collections and views created without an access policy. */
  defaultRead: ReadAccess;
  /** Undefined where no field can be encrypted. */
  rootKey: RootKey | undefined;
  storage: Pick<StorageMonitor, 'refuseWhenFull'>;
  /** Called after a change that may have put a job into the queue. */
  wakeWorker: () => void;
}

/** For changes of an app's catalog, which may also have queued a job. */
async function changingCatalog<T>(
  { readers, queries, wakeWorker }: HandlerContext,
  appId: string,
  result: Promise<T>,
): Promise<T> {
  try {
    return await result;
  } finally {
    readers.forget(appId);
    queries.forget(appId);
    wakeWorker();
  }
}

/** For what needs disk space. Changes that free it, or restrict access, are accepted on a full disk. */
const needingSpace =
  <Q, T>(storage: HandlerContext['storage'], handler: (request: Q, call: Call) => Promise<T>) =>
  async (request: Q, call: Call): Promise<T> => {
    storage.refuseWhenFull();
    return handler(request, call);
  };

type IndexMethod =
  | 'createIndex'
  | 'listIndexes'
  | 'getIndex'
  | 'rebuildIndex'
  | 'rotateDataKey'
  | 'deleteIndex'
  | 'createRelation'
  | 'getOperationPrices'
  | 'getWritePrices';

function indexHandlers(context: HandlerContext): Pick<Handlers<DataDefinition>, IndexMethod> {
  const { pool, fast, defaultRead, storage, rootKey } = context;
  const encryption = { rootKey, viewUsing };
  return {
    createIndex: needingSpace(storage, (request, call) =>
      changingCatalog(context, request.appId, createIndex(pool, request, call, { defaultRead, encryption })),
    ),
    listIndexes: (request) => listIndexes(pool, request),
    getIndex: ({ appId, collection, name }) => getIndex(pool, appId, collection, name),
    rebuildIndex: needingSpace(storage, (request) =>
      changingCatalog(context, request.appId, rebuildIndex(pool, request)),
    ),
    rotateDataKey: needingSpace(storage, (request) =>
      changingCatalog(context, request.appId, rotateDataKey(pool, request, rootKey)),
    ),
    deleteIndex: (request) => changingCatalog(context, request.appId, deleteIndex(pool, request, queriesNeeding)),
    createRelation: needingSpace(storage, (request) =>
      changingCatalog(context, request.appId, createRelation(pool, request)),
    ),
    getOperationPrices: (request) => getOperationPrices(fast, request),
    getWritePrices: (request) => getWritePrices(fast, request),
  };
}

type ViewMethod = 'createView' | 'changeView' | 'listViews' | 'getView' | 'deleteView' | 'refreshView';

function viewHandlers(context: HandlerContext): Pick<Handlers<DataDefinition>, ViewMethod> {
  const { defaultRead, storage } = context;
  return {
    createView: needingSpace(storage, (request) =>
      changingCatalog(context, request.appId, createView(context, request, defaultRead)),
    ),
    changeView: needingSpace(storage, (request) =>
      changingCatalog(context, request.appId, changeView(context, request, defaultRead)),
    ),
    listViews: (request) => listViews(context, request),
    getView: ({ appId, name }) => getView(context, appId, name),
    deleteView: (request) => deleteView(context, request),
    refreshView: needingSpace(storage, (request) =>
      changingCatalog(context, request.appId, refreshView(context, request)),
    ),
  };
}

/** Every method of the service: message → input, call, result → message. */
export function dataHandlers(context: HandlerContext): Handlers<DataDefinition> {
  const { pool, fast, committer, usage, defaultRead, storage } = context;
  return {
    createApplication: needingSpace(storage, (request) => createApplication(pool, request)),
    getApplication: ({ appId }) => getApplication(pool, appId),
    listApplications: ({ limit, offset }) =>
      listApplications(pool, Math.min(Math.max(limit, 1), listingRowsMax), Math.max(offset, 0)),
    updateApplication: (request) => updateApplication(pool, request),
    deleteApplication: (request) => changingCatalog(context, request.appId, deleteApplication(pool, request)),
    verifyKey: ({ hash }) => verifyKey(fast, Buffer.from(hash)),
    createKey: (request) => createKey(pool, request),
    regenerateKey: (request) => regenerateKey(pool, request),
    listKeys: (request) => listKeys(pool, request),
    revokeKey: (request) => revokeKey(pool, request),
    useSignature: (request) => useSignature(fast, request),

    createCollection: needingSpace(storage, (request) =>
      changingCatalog(context, request.appId, createCollection(pool, request, defaultRead)),
    ),
    getCollection: ({ appId, collection }) => getCollection(pool, appId, collection),
    listCollections: (request) => listCollections(pool, request),
    updateCollection: (request, call) => changingCatalog(context, request.appId, updateCollection(pool, request, call)),
    deleteCollection: (request) => changingCatalog(context, request.appId, deleteCollection(pool, request)),
    getAppStats: ({ appId }) => appStats(pool, appId),
    getCollectionStats: ({ appId, collection }) => collectionStats(pool, appId, collection),
    setRetention: (request) => changingCatalog(context, request.appId, setRetention(pool, request)),
    validateDocuments: async (request) => ({ json: await validateDocuments(pool, request) }),

    store: (request, call) => storeDocuments(committerFor(committer, usage, call), pool, request),
    commitUpload: (request, call) => commitUpload(committerFor(committer, usage, call), request),
    getDocument: (request, call) => getDocument(context, request, call),
    changeDocument: (request, call) => changeDocument(committerFor(committer, usage, call), pool, request),
    eraseDocument: (request) => changingCatalog(context, request.appId, eraseDocument(context, request)),
    batch: (request, call) => runBatch(committerFor(committer, usage, call), pool, request),
    listCommits: (request, call) => listCommits(context, request, call),
    commitProof: async (request, call) => ({ json: await commitProof(context, request, call) }),
    getCommit: ({ ticketId }) => getCommit(fast, ticketId),
    closeWrite: ({ ticketId }) => closeWrite(pool, ticketId),
    listDocuments: async (request, call) => ({ json: await listDocuments(context, request, call) }),
    explainQuery: async (request, call) => ({ json: await explainQuery(context, request, call) }),
    optimizeCollection: async (request) => ({ json: await optimizeCollection(context, request) }),
    readCollection: (request, call) => readCollection(context, request, call),

    ...indexHandlers(context),

    ...viewHandlers(context),
    readView: (request, call) => readView(context, request, call),

    createQuery: needingSpace(storage, (request) =>
      changingCatalog(context, request.appId, createQuery(context, request)),
    ),
    listQueries: (request) => listQueries(context, request),
    getQuery: (request) => getQuery(context, request),
    deleteQuery: (request) => changingCatalog(context, request.appId, deleteQuery(context, request)),
    runQuery: (request, call) => runQuery(context, request, call),

    listDatasets: (request) => listDatasets(context, request),
    getDataset: (request) => getDataset(context, request),
    putDataset: needingSpace(storage, (request) => putDataset(context, request)),
    deleteDataset: (request) => deleteDataset(context, request),

    getSkills: (request) => getSkills(context, request),
    putSkills: needingSpace(storage, (request) => putSkills(context, request)),

    getOpenapi: async (request) => ({ json: await getOpenapi(context, request) }),

    getJob: ({ ticketId }) => getJob(pool, ticketId),
  };
}
