import { z } from 'zod';
import { priceConfigSchema } from './index-prices';
import { publishedAs } from './published-as';
import { accessPolicySchema, nameSchema, objectSchema } from './schemas';
import { viewQuery } from './view-query';

/** How a view is kept current. */
export const refreshModes = ['live', 'lazy'] as const;

export const variablesSchema = z
  .record(z.string(), z.string())
  .describe('By name of a URL parameter: the path of the field that it filters, perhaps with an operator as a suffix');

/** The description of the price that a view has for itself. */
export const ownPrice =
  'The price of every read without a key that has `Read`; needs `Admin`. Absent or `{}`: the prices of what it reads';

export const changesSchema = z
  .boolean()
  .describe('Whether the changes of its rows can be followed (docs/feed.md): of a `live` view without a `limit`');

/** A view is made from these members. */
export const viewDefinition = z.strictObject({
  name: nameSchema,
  query: publishedAs(objectSchema, viewQuery),
  source_collections: z
    .array(nameSchema)
    .min(1)
    .max(16)
    .describe('The collections that the query reads: its base and those that it joins'),
  refresh_mode: z
    .enum(refreshModes)
    .nullish()
    .describe(
      '`lazy`, the default: a task fills it when it is made and at each refresh. `live`: it changes in the transaction of each write; a query that cannot is refused',
    ),
  changes: changesSchema.optional(),
  variables: variablesSchema.nullish(),
  access_policy: accessPolicySchema.optional(),
  read_price_config: priceConfigSchema.optional().describe(ownPrice),
});
