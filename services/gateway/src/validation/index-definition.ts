import { z } from 'zod';
import { invalid } from '@granary/shared/errors';
import type { Index } from '@granary/shared/gen/granary/data/v1/Index';
import { publishedAs } from './published-as';
import { priceConfigSchema, priceJson } from './index-prices';
import { exampleTime, fieldPathSchema, indexNameSchema, nameSchema, timeSchema } from './schemas';

const indexTypes = [
  'btree',
  'hash',
  'fulltext',
  'composite',
  'price',
  'encrypted',
  'string',
  'number',
  'boolean',
  'date',
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

const languageSchema = z.string().min(1).max(63).nullish();
const typeSchema = publishedAs(
  z
    .string()
    .transform((text) => text.toLowerCase())
    .pipe(z.enum(indexTypes)),
  z.enum(indexTypes),
);

const documented = z.strictObject({
  name: indexNameSchema,
  collection: nameSchema.describe('The collection; it is created where it does not exist'),
  field_name: fieldPathSchema.nullish().describe('Dotted for a nested field; needed unless there are `fields`'),
  index_type: typeSchema.describe(
    '`btree` serves filters, ranges and orders; `string`, `number`, `boolean` and `date` are a btree over values of ' +
      'that type, `price` one over numbers; `hash` serves equality, and what a btree serves; `composite` is over ' +
      'several fields; `fulltext` serves `$search`; `encrypted` serves equality of a field whose values are stored ' +
      'encrypted from then on. Case-insensitive',
  ),
  fields: z
    .array(fieldPathSchema)
    .min(1)
    .max(16)
    .nullish()
    .describe('The 2 to 4 different fields of a composite index, in its order'),
  store_values: z.boolean().nullish().describe('Accepted for older clients, without effect'),
  unique_constraint: z.boolean().optional().describe('Older name of `options.unique`'),
  sort_enabled: z.boolean().nullish().describe('Accepted for older clients, without effect: every index sorts'),
  options: z
    .object({
      unique: z.boolean().optional().describe('No two documents have equal values; not for a `fulltext` index'),
      language: languageSchema.describe('Of a `fulltext` index: the language of the words, `simple` if none is given'),
      defaultLanguage: languageSchema.describe('Older name of `language`'),
    })
    .nullish()
    .describe('More about the index; members with other names are ignored'),
  force: z.boolean().nullish().describe('Create it although stored documents do not have values of its type'),
  read_price_config: priceConfigSchema
    .optional()
    .describe('The price of reading the field, see docs/money/prices.md. Absent: as it was; `{}`: none'),
  price_config: priceConfigSchema
    .optional()
    .describe('The same for writing, which quotes take into account; writes are not charged'),
});

/** The definition of an index. An older client has other names for the field and the type, and gives no name. */
export const indexDefinition = publishedAs(
  documented.extend({
    name: indexNameSchema.nullish(),
    index_type: typeSchema.nullish(),
    field: fieldPathSchema.nullish(),
    type: typeSchema.nullish(),
  }),
  documented,
);

type Definition = z.output<typeof indexDefinition>;

/**
 * The name, field and type of a definition, also by the names that an older client has for them. Throws
 * VALIDATION_FAILED.
 */
export function namedDefinition(body: Definition): { name: string; fieldName: string; indexType: string } {
  const fieldName = body.field_name ?? body.field ?? '';
  const indexType = body.index_type ?? body.type;
  const problems = {
    ...(fieldName === '' && !body.fields && { field_name: ['is required'] }),
    ...(!indexType && { index_type: ['is required'] }),
    ...(!body.name && !body.field && { name: ['is required'] }),
  };
  if (Object.keys(problems).length > 0) throw invalid('The body is not valid', problems);
  return { name: body.name ?? `${body.collection}_${fieldName}_idx`, fieldName, indexType: indexType! };
}

/** The language that options ask for. */
export function languageOf(options: Definition['options']): { language?: string } {
  const language = options?.language ?? options?.defaultLanguage;
  return typeof language === 'string' ? { language } : {};
}

export const indexSchema = z
  .object({
    name: z.string().describe('Name of the index'),
    collection: z.string().describe('The collection'),
    field_name: z.string().describe('The field; of a composite index the first one'),
    fields: z.array(z.string()).optional().describe('Of a composite index, in its order'),
    index_type: z.enum(indexTypes).describe('What it serves'),
    options: z
      .object({ language: z.string().describe('Of the words') })
      .optional()
      .describe('Of a `fulltext` index'),
    unique: z.boolean().describe('Whether no two documents have equal values'),
    status: z.enum(['building', 'ready', 'failed']).describe('Reads use it once it is `ready`'),
    error: z.string().nullable().describe('Why it failed'),
    size_bytes: z.int().describe('Its size on disk'),
    entry_count: z.int().describe('Documents in it'),
    price_config: priceConfigSchema.optional().describe('The price of writing, where there is one'),
    read_price_config: priceConfigSchema.optional().describe('The price of reading, where there is one'),
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
    ...(index.language !== undefined && { options: { language: index.language } }),
    unique: index.unique,
    status: index.status,
    error: index.error ?? null,
    size_bytes: Number(index.sizeBytes),
    entry_count: Number(index.entryCount),
    ...(index.priceConfig && { price_config: priceJson(index.priceConfig) }),
    ...(index.readPriceConfig && { read_price_config: priceJson(index.readPriceConfig) }),
    created_at: index.createdAt,
  };
}
