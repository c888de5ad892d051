import { z } from 'zod';
import type { Collection } from '@granary/shared/gen/granary/data/v1/Collection';
import type { CollectionStats } from '@granary/shared/gen/granary/data/v1/CollectionStats';
import { jsonText } from '../http/answer';
import { priceConfigSchema, priceJson } from './index-prices';
import { flagParameter } from './parameters';
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

const readPriceField = priceConfigSchema
  .optional()
  .describe('The price of every read without a key that has `Read`; needs `Admin`. Absent: as it was; `{}`: none');

const writePricing = z.enum(['on', 'off']);
const writePricingText = 'Whether writes by keys without `Admin` cost something';

/** The members that a collection is made with beside its name. */
export const collectionDefinition = {
  namespace: namespace.nullish(),
  primary_column: primaryColumn.nullish(),
  sort_column: sortColumn.nullish(),
  schema_definition: publishedAs(
    z.strictObject({ fields: objectSchema.nullish() }).nullish(),
    schemaDefinition.nullable(),
  ).describe('Rules for the fields of documents; null is none'),
  /** Null is what the published client sends where nothing is said: as if it was absent. */
  access_policy: accessPolicySchema.nullish(),
  read_price_config: readPriceField,
  write_pricing: writePricing
    .optional()
    .describe(`${writePricingText}; needs \`Admin\`. Absent: as it was, at first off`),
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
    write_pricing: z.literal('on').optional().describe(`${writePricingText}: absent, they do not`),
    read_price_config: priceConfigSchema.optional().describe('The price of reads, where there is one'),
    metadata: objectSchema
      .optional()
      .describe(
        'With `include_stats`: `document_count`, `storage_size`, `avg_document_size`, `created_at`, `updated_at`',
      ),
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
    ...(collection.writePricing && { write_pricing: 'on' }),
    ...(collection.readPriceConfig && { read_price_config: priceJson(collection.readPriceConfig) }),
  };
}

/** The counts of a collection; the last four members are those that the client `@onchaindb/sdk` reads. */
export const collectionStatsSchema = z.object({
  app_id: z.string().describe('The application'),
  collection: z.string().describe('The collection'),
  document_count: z.int().describe('Documents, soft-deleted ones not among them'),
  deleted_count: z.int().describe('Soft-deleted documents'),
  version_count: z.int().describe('All versions of all documents'),
  size_bytes: z.int().describe('Bytes of all versions'),
  index_count: z.int().describe('Indexes of the collection'),
  last_write_at: timeSchema.nullable().describe('Time of the last commit to it'),
  storage_size: z.int().describe('The same as `size_bytes`'),
  avg_document_size: z.int().describe('Bytes of all versions by document, rounded'),
  created_at: timeSchema.describe('When it was made'),
  updated_at: timeSchema.describe('When its definition last changed'),
});

export const exampleCollectionStats = {
  app_id: 'demo',
  collection: 'notes',
  document_count: 1,
  deleted_count: 0,
  version_count: 1,
  size_bytes: 40,
  index_count: 1,
  last_write_at: exampleTime,
  storage_size: 40,
  avg_document_size: 40,
  created_at: exampleTime,
  updated_at: exampleTime,
};

export function collectionStatsJson(stats: CollectionStats) {
  const { document_count, ...others } = metadataJson(stats);
  return {
    collection: stats.collection,
    document_count,
    deleted_count: Number(stats.deletedCount),
    version_count: Number(stats.versionCount),
    size_bytes: Number(stats.sizeBytes),
    index_count: stats.indexCount,
    last_write_at: stats.lastWriteAt ?? null,
    ...others,
  };
}

/** The members that the client `@onchaindb/sdk` calls the metadata of a collection. */
function metadataJson(collection: Pick<Collection, 'documentCount' | 'sizeBytes' | 'createdAt' | 'updatedAt'>) {
  const [documents, sizeBytes] = [Number(collection.documentCount), Number(collection.sizeBytes)];
  return {
    document_count: documents,
    storage_size: sizeBytes,
    avg_document_size: documents === 0 ? 0 : Math.round(sizeBytes / documents),
    created_at: collection.createdAt,
    updated_at: collection.updatedAt,
  };
}

/** A collection; with `include_stats` also with its metadata. */
export const describedCollectionJson = (collection: Collection, { include_stats: isAsked }: IncludeStats) => ({
  ...collectionJson(collection),
  ...(isAsked && { metadata: metadataJson(collection) }),
});

export const includeStats = {
  include_stats: flagParameter.optional().describe('`true`: with `metadata`, under the names of other clients'),
};
interface IncludeStats {
  include_stats?: boolean | undefined;
}
