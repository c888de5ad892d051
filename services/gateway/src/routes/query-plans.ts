import { z } from 'zod';
import { jsonBytes } from '../http/answer';
import { bodyLimits, route } from '../pipeline/route';
import { exampleTime, objectSchema, timeSchema } from '../validation/schemas';
import { listSchema } from './documents';

const read = { kind: 'app', permission: 'Read' } as const;
const tag = 'Collections';
const path = '/apps/{app_id}/collections/{collection}';

const querySchema = listSchema.extend({
  root: listSchema.shape.root.optional().describe('`app_id::collection`, as in the path; may be left out'),
});

const planNodeSchema = z
  .object({
    node: z.string().describe('What Postgres does, such as `Index Scan`, `Seq Scan`, `Sort`'),
    index: z.string().optional().describe('Name of the index that it reads; `primary_key` is that of the ids'),
    direction: z.string().optional().describe('In which direction it reads the index'),
    estimated_rows: z.number().describe('Rows that it is estimated to give'),
    startup_cost: z.number().describe('Estimated cost until its first row'),
    total_cost: z.number().describe('Estimated cost of all its rows'),
    plans: z.array(z.unknown()).describe('The nodes that it takes its rows from, in the same form'),
  })
  .describe('The plan that Postgres chose for the statement that would run');

const methods = ['id', 'index', 'index_order', 'index_order_by_text', 'sort'] as const;

const accessSchema = z
  .object({
    method: z
      .enum(methods)
      .describe(
        '`id`: the document of an id; `index`: one index gives the page alone; `index_order`: an index gives the order, ' +
          'documents that do not match are skipped; `index_order_by_text`: the same for strings over 256 bytes; `sort`: ' +
          'the matches are found by the cheapest way and sorted',
      ),
    index: z.string().nullable().describe('The index that is read in its order'),
    equal_fields: z.array(z.string()).describe('Fields of the index that the filter fixes to one value'),
    order: z
      .array(
        z.object({
          field: z.string().describe('A field that decides the order'),
          direction: z.enum(['ascending', 'descending']).describe('Its direction'),
        }),
      )
      .describe('What decides the order'),
    is_after_cursor: z.boolean().describe('Whether the page begins at a cursor'),
    filter: z.string().describe('The filter without its values'),
    joins: z.array(objectSchema).describe('How each join of the query is read, those within it in its `joins`'),
    alternative: z
      .object({
        method: z.enum(methods).describe('What is done instead'),
        when: z.array(z.string()).describe('In which cases'),
      })
      .nullable()
      .describe('How the page is read where this method cannot give it'),
  })
  .describe('How Granary reads the page');

const hintSchema = z.object({
  code: z
    .enum(['MISSING_INDEX', 'UNINDEXED_SORT', 'MIXED_SORT', 'EXACT_COUNT', 'LARGE_OFFSET', 'UNKNOWN_FIELD'])
    .describe('The kind of hint'),
  message: z.string().describe('Text for people'),
  field: z.string().optional().describe('The field that neither the schema nor an index nor a sample has'),
  collection: z.string().optional().describe('The collection that a join scans, where the hint is for a join'),
  fields: z.array(z.string()).optional().describe('The fields of an index that would serve the query, in their order'),
});

const explainedSchema = z.object({
  collection: z.string().describe('Its name'),
  indexes_used: z
    .array(z.string())
    .describe(
      'The indexes that can find the matches or give their order. Postgres may still read a small collection, or one ' +
        'that mostly matches, as a whole: see `plan`',
    ),
  plan: planNodeSchema,
  cost: z
    .object({
      startup: z.number().describe('Until the first document'),
      total: z.number().describe('For the page'),
    })
    .describe('Estimated by Postgres, in its own unit: comparable with that of other queries'),
  access: accessSchema,
  hints: z.array(hintSchema).describe('What would make the query cheaper, and fields that may be misspelt'),
});

const slowQuerySchema = z.object({
  filter: z.string().describe('Its filter: fields and operators, without values'),
  sort: z.string().describe('The fields that it sorts by, with commas between them; `-field` descends'),
  count: z.int().describe('How often it ran'),
  total_ms: z.number().describe('What its statements took together, in ms'),
  mean_ms: z.number().describe('What they took on average'),
  max_ms: z.number().describe('What they took at most'),
  last_at: timeSchema.describe('When it ran last'),
  missing_index: z.array(z.string()).nullable().describe('The fields of an index that would have served it'),
});

const optimizedSchema = z.object({
  collection: z.string().describe('Its name'),
  document_count: z.int().describe('Documents in it, soft-deleted ones too'),
  missing_indexes: z.array(z.string()).describe('The fields of each of `suggested_indexes`, with commas between them'),
  unused_indexes: z
    .array(z.string())
    .describe('Indexes read ten times at most. Unique ones are left out, because writes use them'),
  recommendations: z.array(z.string()).describe('What to create and delete, as text for people'),
  suggested_indexes: z
    .array(
      z.object({
        fields: z.array(z.string()).describe('The fields, in their order'),
        index_type: z.enum(['btree', 'composite']).describe('The type to create it with'),
        queries: z.int().describe('Queries that it would have served'),
        total_ms: z.number().describe('What they took together, in ms'),
      }),
    )
    .describe('Indexes that slow queries would have used; none for collections of fewer than 1,000 documents'),
  indexes: z
    .array(
      z.object({
        name: z.string().describe('Its name'),
        scans: z.int().describe('How often it was read'),
        last_used_at: timeSchema.nullable().describe('When it was read last'),
        size_bytes: z.int().describe('Its size'),
      }),
    )
    .describe('How often each index that is ready was read, up to a minute ago'),
  index_scans_since: timeSchema.nullable().describe('Since when; null: since each index was created'),
  slow_queries: z
    .array(slowQuerySchema)
    .describe('Queries that no index gave alone, by the time that they took together; the first 20'),
  slow_queries_since: timeSchema.describe(
    'Since when they are recorded: the start of the process that answers. The last 30 shapes are kept, in memory',
  ),
});

export const queryPlanRoutes = [
  route({
    method: 'POST',
    path: `${path}/explain`,
    id: 'explainQuery',
    summary: 'Explain how a query would be read',
    description: 'Takes a query of `/list` and does not run it: which indexes serve it, its plan, cost and hints.',
    tag,
    auth: read,
    body: {
      kind: 'raw',
      content: {
        'application/json': {
          schema: z.strictObject({ query: querySchema.describe('The members of a body of `/list`') }),
          example: { query: { find: { stars: { gte: 4 } }, sort: ['-stars'], limit: 10 } },
        },
      },
      limitBytes: bodyLimits.definitionBytes,
    },
    responses: {
      200: {
        description: 'How it would be read',
        schema: explainedSchema,
        example: {
          collection: 'notes',
          indexes_used: ['by_stars'],
          plan: {
            node: 'Limit',
            estimated_rows: 11,
            startup_cost: 0.28,
            total_cost: 12.4,
            plans: [
              {
                node: 'Index Scan',
                index: 'by_stars',
                direction: 'backward',
                estimated_rows: 420,
                startup_cost: 0.28,
                total_cost: 462.1,
                plans: [],
              },
            ],
          },
          cost: { startup: 0.28, total: 12.4 },
          access: {
            method: 'index_order',
            index: 'by_stars',
            equal_fields: [],
            order: [
              { field: 'stars', direction: 'descending' },
              { field: 'id', direction: 'descending' },
            ],
            is_after_cursor: false,
            filter: 'stars >=',
            joins: [],
            alternative: {
              method: 'index_order_by_text',
              when: ['a string that decides the order is longer than 256 bytes'],
            },
          },
          hints: [
            {
              code: 'EXACT_COUNT',
              message: 'total counts all matches unless the page is the last one; count=none leaves it out',
            },
          ],
        },
      },
      400: { description: 'Malformed or invalid', codes: ['INVALID_QUERY', 'LIMIT_EXCEEDED', 'INVALID_CURSOR'] },
    },
    handle: async ({ clients }, { path: names, body, call }) => {
      const request = { appId: names.app_id, collection: names.collection, body };
      return jsonBytes(200, (await clients.data.explainQuery(request, call)).json);
    },
  }),
  route({
    method: 'GET',
    path: `${path}/optimize`,
    id: 'optimizeCollection',
    summary: 'Find missing and unused indexes, and slow queries',
    description: 'From what its queries did. Queries are recorded as fields and operators, without values.',
    tag,
    auth: read,
    responses: {
      200: {
        description: 'What would make its reads cheaper',
        schema: optimizedSchema,
        example: {
          collection: 'notes',
          document_count: 12_000,
          missing_indexes: ['author,stars'],
          unused_indexes: ['by_text'],
          recommendations: [
            'Delete the index by_text if nothing needs it: it was read 0 times and takes 1204224 bytes',
          ],
          suggested_indexes: [{ fields: ['author', 'stars'], index_type: 'composite', queries: 31, total_ms: 846.2 }],
          indexes: [{ name: 'by_text', scans: 0, last_used_at: null, size_bytes: 1_204_224 }],
          index_scans_since: null,
          slow_queries: [
            {
              filter: 'author is',
              sort: '-stars',
              count: 31,
              total_ms: 846.2,
              mean_ms: 27.3,
              max_ms: 41.9,
              last_at: exampleTime,
              missing_index: ['author', 'stars'],
            },
          ],
          slow_queries_since: exampleTime,
        },
      },
    },
    handle: async ({ clients }, { path: names, call }) =>
      jsonBytes(
        200,
        (await clients.data.optimizeCollection({ appId: names.app_id, collection: names.collection }, call)).json,
      ),
  }),
];
