import { z } from 'zod';
import type { Index } from '@granary/shared/gen/granary/data/v1/Index';
import { publishedAs } from './published-as';
import { exampleTime, fieldPathSchema, indexNameSchema, nameSchema, objectSchema, timeSchema } from './schemas';

const indexTypes = [
  ...['btree', 'hash', 'fulltext', 'composite', 'price', 'encrypted'],
  ...['string', 'number', 'boolean', 'date'],
] as const;

export const exampleIndex = {
  name: 'by_stars',
  collection: 'notes',
  field_name: 'stars',
  index_type: 'number',
  unique: false,
  status: 'ready',
  error: null,
  size_bytes: 16_384,
  entry_count: 1,
  created_at: exampleTime,
};

/** What an index is made of. */
export const indexDefinition = z.strictObject({
  name: indexNameSchema,
  collection: nameSchema.describe('The collection; it is created where it does not exist'),
  field_name: fieldPathSchema.nullish().describe('Dotted for a nested field; needed unless there are `fields`'),
  index_type: publishedAs(
    z
      .string()
      .transform((text) => text.toLowerCase())
      .pipe(z.enum(indexTypes)),
    // The others answer 501.
    z.enum(indexTypes).exclude(['hash', 'fulltext', 'price', 'encrypted']),
  ).describe(
    '`btree` serves filters, ranges and orders; `string`, `number`, `boolean` and `date` are a btree over values of ' +
      'that type; `composite` is over several fields. Case-insensitive',
  ),
  fields: z
    .array(fieldPathSchema)
    .min(1)
    .max(16)
    .nullish()
    .describe('The 2 to 4 different fields of a composite index, in its order'),
  store_values: z.boolean().nullish().describe('Accepted for older clients, without effect'),
  unique_constraint: z.boolean().nullish().describe('Older name of `options.unique`'),
  sort_enabled: z.boolean().nullish().describe('Accepted for older clients, without effect: every index sorts'),
  options: z
    .strictObject({ unique: z.boolean().nullish().describe('No two documents have equal values') })
    .nullish()
    .describe('More about the index'),
  // Other values than null answer 501.
  read_price_config: publishedAs(objectSchema.nullish(), z.null()).describe('Reserved'),
  price_config: publishedAs(objectSchema.nullish(), z.null()).describe('Reserved'),
});

export const indexSchema = z
  .object({
    name: z.string().describe('Name of the index'),
    collection: z.string().describe('The collection'),
    field_name: z.string().describe('The field; of a composite index the first one'),
    fields: z.array(z.string()).optional().describe('Of a composite index, in its order'),
    index_type: z.enum(indexTypes).describe('What it serves'),
    unique: z.boolean().describe('Whether no two documents have equal values'),
    status: z.enum(['building', 'ready', 'failed']).describe('Reads use it once it is `ready`'),
    error: z.string().nullable().describe('Why it failed'),
    size_bytes: z.int().describe('Its size on disk'),
    entry_count: z.int().describe('Documents in it'),
    created_at: timeSchema.describe('When it was made'),
  })
  .meta({ id: 'Index', examples: [exampleIndex] });

export function indexJson(index: Index) {
  return {
    name: index.name,
    collection: index.collection,
    field_name: index.fieldName,
    ...(index.fields.length > 0 ? { fields: index.fields } : {}),
    index_type: index.indexType,
    unique: index.unique,
    status: index.status,
    error: index.error ?? null,
    size_bytes: Number(index.sizeBytes),
    entry_count: Number(index.entryCount),
    created_at: index.createdAt,
  };
}
