import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { AccessTo } from '@granary/shared/rpc/access';

/** Who may ask data for what from another process. */
export const dataAccess = {
  gateway: [
    ...['createApplication', 'getApplication', 'listApplications', 'deleteApplication'],
    ...['verifyKey', 'regenerateKey', 'listKeys', 'revokeKey'],
    ...['createCollection', 'getCollection', 'listCollections', 'updateCollection', 'deleteCollection'],
    ...['getAppStats', 'getCollectionStats', 'setRetention', 'validateDocuments'],
    ...['store', 'listDocuments', 'readCollection'],
    ...['createIndex', 'listIndexes', 'getIndex', 'rebuildIndex', 'deleteIndex'],
    ...['createView', 'listViews', 'getView', 'deleteView', 'refreshView', 'readView'],
    ...['createQuery', 'listQueries', 'getQuery', 'deleteQuery', 'runQuery'],
    ...['getSkills', 'putSkills'],
  ],
  // A blob is removed by deleting its document, which is a write like others.
  blobs: ['commitUpload', 'getCommit', 'store'],
  tasks: ['getCommit', 'getJob'],
} as const satisfies AccessTo<DataDefinition>;
