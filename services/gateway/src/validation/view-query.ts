import { z } from 'zod';
import { fieldsSchema, findSchema, nameSchema, selectSchema } from './schemas';

/** The query of a view as documented; the data service validates it, and accepts older spellings too. */
export const viewQuery = z
  .strictObject({
    find: findSchema.nullish(),
    select: selectSchema.nullish(),
    group_by: fieldsSchema.nullish().describe('Fields that the rows are grouped by'),
    aggregate: z
      .record(z.string(), z.record(z.string(), z.string()))
      .nullish()
      .describe(
        'By name of the column: `{"$op": "field"}` with `$sum`, `$avg`, `$min`, `$max`, `$count` (a field or `"*"`), ' +
          '`$count_distinct`, `$first` or `$last`. At most 64',
      ),
    join: z
      .record(
        z.string(),
        z.strictObject({
          collection: nameSchema.optional().describe('The collection, by default the one named like the alias'),
          on: z
            .record(z.string(), z.string())
            .describe('By field of that collection: `$data.<field>` of the base, or `$data.<alias>.<field>`'),
          type: z.enum(['left', 'inner']).optional().describe('`left`, the default, keeps rows without a partner'),
        }),
      )
      .nullish()
      .describe('By alias: documents that become a member of the row, one row for each pair. At most 4'),
    base: nameSchema.optional().describe('The collection of the rows, by default the first source'),
    sort_by: fieldsSchema.nullish().describe('Order of the rows; `-field` descends'),
    limit: z.int().min(1).max(10_000).optional().describe('Rows that are kept, at most'),
  })
  .describe('What the view holds');
