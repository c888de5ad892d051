import { z } from 'zod';
import {
  appIdPattern,
  appIdRule,
  indexNamePattern,
  indexNameRule,
  namePattern,
  nameRule,
  publishedIndexNamePattern,
} from '@granary/shared/names';

/** Shapes that several nouns use. */

export const appIdSchema = z.string().regex(appIdPattern, appIdRule);

/** The name of a collection, a view or a predefined query. */
export const nameSchema = z
  .string()
  .regex(namePattern, nameRule)
  .describe('1 to 63 letters, digits, `_` or `-`, not beginning with `-`; unique in the application');

export const indexNameSchema = z
  .string()
  .regex(indexNamePattern, indexNameRule)
  .meta({ pattern: publishedIndexNamePattern, description: '1 to 200 printable characters; unique in the collection' });

export const accessPolicySchema = z
  .strictObject({
    read: z.enum(['public', 'private']).describe('`public`: anybody reads; `private`: a key with `Read` is needed'),
  })
  .meta({ id: 'AccessPolicy', description: 'Who may read without a key', examples: [{ read: 'private' }] });

export const utiaSchema = z.int().min(0).describe('In utia');

/** The path of a field, as the document presents it. */
export const fieldPathSchema = z.string().min(1).max(500).meta({ pattern: '^[^.]+([.][^.]+)*$' });

/** One field or several, separated by commas or as a list, as the document presents them. */
export const fieldsSchema = z.union([
  z.string().meta({ pattern: '^[^,.]+([.,][^,.]+)*$' }),
  z.array(fieldPathSchema).max(16),
]);

/** Any JSON object; a service checks what is in it. */
export const objectSchema = z.record(z.string(), z.unknown());

/** A time as `toISOString` writes it. */
export const timeSchema = z.string().meta({ format: 'date-time' });

export const exampleTime = '2026-01-31T12:00:00.000Z';
export const exampleTicket = 'c1-Qm9va3MgYW5kIHRoZWly';

const success = {
  success: z.literal(true).describe('Always true; a failure is an error'),
  message: z.string().describe('Text for people'),
};

export const successSchema = z.object(success);

export const ticketField = z.string().describe('Ask for its task at `/api/tasks/{ticket_id}`');

export const ticketSchema = successSchema.extend({ ticket_id: ticketField });

const fieldHint = z.object({
  code: z.literal('UNKNOWN_FIELD').describe('The kind of hint'),
  field: z.string().describe('The field, as the filter names it'),
  message: z.string().describe('Text for people, with the name that may have been meant'),
});

const page = {
  records: z.array(objectSchema).describe('The records of the page, in their order'),
  total: z
    .int()
    .nullable()
    .describe('How many records match, on all pages; null with `count: none` unless it is known without counting'),
  page: z.int().nullable().describe('floor(offset / limit) + 1; null for a page by cursor'),
  limit: z.int().describe('The limit that was applied'),
  next_cursor: z.string().optional().describe('Where there is more: the cursor of the next page'),
  hints: z
    .array(fieldHint)
    .optional()
    .describe('Where nothing matches: the fields of the filter that neither the schema nor an index nor a sample has'),
};

/** A page of records, as the data service renders it. */
export const recordsSchema = z.object(page).meta({
  id: 'Records',
  examples: [{ records: [{ id: 'first', text: 'Hello', stars: 5 }], total: 1, page: 1, limit: 100 }],
});

/** `find` of a query. */
export const findSchema = objectSchema.describe(
  'The filter: `{"field": value}` is equality, `{"field": {"gte": 1, "lt": 9}}` operators, several fields are a ' +
    'conjunction; `and`, `or` and `not` take lists of filters. Dotted names reach nested fields. `$regex` takes an ' +
    'expression in RE2 syntax. ' +
    '`"alias": {"resolve": {"find": {"id": "$data.field"}, "select": ["name"]}, "model": "collection", "many": false}` ' +
    'joins records of another collection. See docs/guide/queries.md',
);

/** `select` of a query. */
export const selectSchema = z
  .union([objectSchema, z.array(z.string()), z.string()])
  .describe('Fields to return: `["a", "b.c"]`, `"a,b.c"`, `{"a": true}`; or to leave out: `{"a": false}`');

export function accessPolicy(readAccess: string): { read: string } {
  return { read: readAccess };
}

/** The part of an answer about the collection that the request made because none had its name. */
export const createdCollectionSchema = z
  .object({ name: z.string().describe('Name of the collection'), access_policy: accessPolicySchema })
  .optional()
  .describe('The collection that the request made, for there was none of its name');

/** The documents that do not fit, in the answer to a forced change. */
export const unfitDocumentsSchema = z
  .int()
  .optional()
  .describe(
    'With `force`: the documents that do not have the new types. Of a collection that takes longer than 3 s to read, ' +
      'those that were read',
  );

export const unfitDocumentsJson = ({ unfitDocuments }: { unfitDocuments?: string | undefined }) =>
  unfitDocuments === undefined ? {} : { unfit_documents: Number(unfitDocuments) };

export const createdJson = ({ name, readAccess }: { name: string; readAccess: string }) => ({
  name,
  access_policy: accessPolicy(readAccess),
});
