import { z } from 'zod';
import type { Collection } from '@granary/shared/gen/granary/data/v1/Collection';
import { jsonText } from '../http/answer';
import { publishedAs } from './published-as';
import { schemaDefinition } from './schema-definition';
import { accessPolicy, accessPolicySchema, exampleTime, objectSchema, timeSchema } from './schemas';

export const exampleCollection = {
  app_id: 'demo',
  name: 'diary',
  namespace: null,
  primary_column: null,
  sort_column: null,
  schema_definition: null,
  access_policy: { read: 'private' },
  retention_days: null,
  document_count: 0,
  size_bytes: 0,
  created_at: exampleTime,
  updated_at: exampleTime,
};

const namespace = z.string().max(200).describe('Shown in the results of writes; by default `app_id::collection`');
const primaryColumn = z.string().max(200).describe('A note for clients: kept and shown, without effect');
const sortColumn = z.string().max(200).describe('A note for clients: kept and shown, without effect');

/** What a collection is made with beside its name. */
export const collectionDefinition = {
  namespace: namespace.nullish(),
  primary_column: primaryColumn.nullish(),
  sort_column: sortColumn.nullish(),
  schema_definition: publishedAs(
    z.strictObject({ fields: objectSchema.nullish() }).nullish(),
    schemaDefinition.nullable(),
  ).describe('Rules for the fields of documents; null is none'),
  access_policy: accessPolicySchema.nullish(),
};

export const collectionSchema = z
  .object({
    app_id: z.string().describe('The application'),
    name: z.string().describe('Name of the collection'),
    namespace: namespace.nullable(),
    primary_column: primaryColumn.nullable(),
    sort_column: sortColumn.nullable(),
    schema_definition: objectSchema.nullable().describe('As it was given'),
    access_policy: accessPolicySchema,
    retention_days: z.int().nullable().describe('Documents not written for so many days are purged; null keeps them'),
    document_count: z.int().describe('Documents, soft-deleted ones not among them'),
    size_bytes: z.int().describe('Bytes of all versions of the documents'),
    created_at: timeSchema.describe('When it was made'),
    updated_at: timeSchema.describe('When its definition last changed'),
  })
  .meta({ id: 'Collection', examples: [exampleCollection] });

export function collectionJson(collection: Collection) {
  return {
    app_id: collection.appId,
    name: collection.name,
    namespace: collection.namespace ?? null,
    primary_column: collection.primaryColumn ?? null,
    sort_column: collection.sortColumn ?? null,
    schema_definition: jsonText(collection.schemaJson),
    access_policy: accessPolicy(collection.readAccess),
    retention_days: collection.retentionDays ?? null,
    document_count: Number(collection.documentCount),
    size_bytes: Number(collection.sizeBytes),
    created_at: collection.createdAt,
    updated_at: collection.updatedAt,
  };
}
