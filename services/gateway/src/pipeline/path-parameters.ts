import { appIdPattern, indexNamePattern, namePattern, publishedIndexNamePattern } from '@granary/shared/names';
import type { Code } from '../errors/codes';

const token = /^[A-Za-z0-9_-]{1,128}$/;

export interface PathParameterRule {
  pattern: RegExp;
  /** The pattern in the OpenAPI document, where generators cannot use the exact one. */
  published?: string;
  example: string;
  description: string;
  /** The code of the 404 for a value that the pattern refuses, and the noun in its message. */
  reason: Code;
  noun: string;
}

/** The parameters of paths. */
export const pathParameters = {
  app_id: {
    pattern: appIdPattern,
    example: 'demo',
    description: 'Id of the application',
    reason: 'APP_NOT_FOUND',
    noun: 'application',
  },
  collection: {
    pattern: namePattern,
    example: 'notes',
    description: 'Name of the collection',
    reason: 'COLLECTION_NOT_FOUND',
    noun: 'collection',
  },
  view_name: {
    pattern: namePattern,
    example: 'by_stars',
    description: 'Name of the view',
    reason: 'VIEW_NOT_FOUND',
    noun: 'view',
  },
  query_name: {
    pattern: namePattern,
    example: 'with_stars',
    description: 'Name of the predefined query',
    reason: 'QUERY_NOT_FOUND',
    noun: 'query',
  },
  dataset_name: {
    pattern: namePattern,
    example: 'blocked',
    description: 'Name of the data set',
    reason: 'DATASET_NOT_FOUND',
    noun: 'data set',
  },
  index_name: {
    pattern: indexNamePattern,
    published: publishedIndexNamePattern,
    example: 'by_stars',
    description: 'Name of the index',
    reason: 'INDEX_NOT_FOUND',
    noun: 'index',
  },
  blob_id: {
    pattern: token,
    // All blobs have ids of this form; what has another one is not there, and cannot be stored.
    published: '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$',
    example: '0190f3a2-b4c8-7d6e-8f90-a1b2c3d4e5f6',
    description: 'Id of the blob, as its upload answered it, or as the client has chosen it: a UUID in lower case',
    reason: 'BLOB_NOT_FOUND',
    noun: 'blob',
  },
  key_id: {
    pattern: token,
    example: 'KEY_ID',
    description: 'Id of the key, as the list of keys shows it',
    reason: 'KEY_NOT_FOUND',
    noun: 'key',
  },
  ticket_id: {
    pattern: token,
    example: 'TICKET_ID',
    description: 'The ticket that a write, an upload or the build of an index or view answered',
    reason: 'TASK_NOT_FOUND',
    noun: 'task',
  },
  import_id: {
    pattern: token,
    example: 'IMPORT_ID',
    description: 'Id of the import, which is the ticket of its task too',
    reason: 'IMPORT_NOT_FOUND',
    noun: 'import',
  },
  document_id: {
    pattern: /^[^\0]{1,512}$/,
    published: '^[^\\u0000]{1,512}$',
    example: 'first',
    description: 'Id of the document',
    reason: 'DOCUMENT_NOT_FOUND',
    noun: 'document',
  },
  height: {
    pattern: /^[1-9][0-9]{0,14}$/,
    example: '1',
    description: 'Height of the commit',
    reason: 'COMMIT_NOT_FOUND',
    noun: 'commit',
  },
  grant_id: {
    pattern: /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/,
    example: '0198c1c2-6a3e-7d2b-9f9e-1c7f0e6a5b11',
    description: 'Id of the grant',
    reason: 'GRANT_NOT_FOUND',
    noun: 'grant',
  },
  user_address: {
    pattern: /^[A-Za-z0-9]{1,128}$/,
    example: 'celestia1qurswpc8qurswpc8qurswpc8qurswpc8zek26v',
    description: 'A bech32 address of the chain',
    reason: 'ADDRESS_NOT_FOUND',
    noun: 'address',
  },
} as const satisfies Record<string, PathParameterRule>;
export type PathParameter = keyof typeof pathParameters;
