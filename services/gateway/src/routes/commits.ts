import { z } from 'zod';
import { jsonBytes } from '../http/answer';
import { listingHeaders, nextCursorSchema, nextLink } from '../pipeline/listing';
import { canonicalPathOf, route } from '../pipeline/route';
import { flagParameter, wholeParameter } from '../validation/parameters';
import { exampleTime, timeSchema } from '../validation/schemas';

const hashSchema = z.string().regex(/^[0-9a-f]{64}$/);
const textSchema = z.string().nullable().describe('Its text; null where it is not stored any more, or is a blob');

const entrySchema = z.object({
  id: z.string().describe('Id of the document, or of the blob'),
  sha256: hashSchema
    .nullable()
    .describe('SHA-256 of its text, or of the bytes of the blob; null where it was not kept'),
});

const commitSchema = z.object({
  height: z.int().describe('Its place in the chain, from 1 on'),
  hash: hashSchema.describe('The commit hash'),
  content_hash: hashSchema.describe('The hash of what it stored'),
  operation: z.enum(['store', 'upload']).describe('What made it'),
  stores: z.enum(['documents', 'blob']).describe('`blob`: the bytes of an upload'),
  collection: z.string().describe('Name of the collection'),
  at: timeSchema.describe('When it was committed, by the clock of the service'),
  document_count: z.int().describe('How many documents it stored'),
});

const hash = (digits: string) => digits.repeat(32);
const exampleCommit = {
  height: 2,
  hash: hash('4f'),
  content_hash: hash('d8'),
  operation: 'store',
  stores: 'documents',
  collection: 'notes',
  at: exampleTime,
  document_count: 1,
} as const;
const exampleEntry = { id: 'a', sha256: hash('61') };

const path = '/apps/{app_id}/commits';
const auth = { kind: 'app', permission: 'Read' } as const;

export const commitRoutes = [
  route({
    method: 'GET',
    path,
    id: 'listCommits',
    summary: 'List the commits of an application',
    description:
      'The links of its hash chain in order, with the hashes of all that they stored: enough to recompute the chain. A ' +
      'commit that does not fit on a page continues on the next, with the `place` of its first document there. ' +
      '`npm run verify` checks all of it.',
    tag: 'Commits',
    auth,
    query: z.strictObject({
      from: wholeParameter(1, 999_999_999_999_999).default(1).describe('Height of the first commit'),
      limit: wholeParameter(1, 1_000).default(100).describe('Commits of the page, at most'),
      cursor: z.string().max(100).optional().describe('`next_cursor` of the page before; instead of `from`'),
      texts: flagParameter.optional().describe('`true`: with the text of each document, as a string'),
    }),
    responses: {
      200: {
        description: 'A page of commits',
        schema: z.object({
          app_id: z.string().describe('The application'),
          head: z
            .object({ height: z.int().describe('0 before the first'), hash: hashSchema.describe('Its hash') })
            .describe('The last commit of the application'),
          commits: z
            .array(
              commitSchema.extend({
                place: z.int().describe('The place of the first of `documents` in the commit, from 0 on'),
                documents: z
                  .array(entrySchema.extend({ text: textSchema.optional() }))
                  .describe('What it stored, in order'),
              }),
            )
            .describe('In the order of their heights'),
          next_cursor: nextCursorSchema,
        }),
        example: {
          app_id: 'demo',
          head: { height: 2, hash: hash('4f') },
          commits: [{ ...exampleCommit, place: 0, documents: [exampleEntry] }],
        },
        headers: listingHeaders,
      },
      400: { description: 'A parameter is not valid', codes: ['VALIDATION_FAILED', 'INVALID_CURSOR'] },
    },
    handle: async ({ clients }, request) => {
      const { from, limit, cursor, texts } = request.query;
      const rpcRequest = {
        appId: request.path.app_id,
        from: String(from),
        limit,
        cursor: cursor ?? '',
        texts: texts ?? false,
      };
      const { json, nextCursor } = await clients.data.listCommits(rpcRequest, request.call);
      const next = { limit, ...(texts && { texts: 'true' }), cursor: nextCursor };
      return jsonBytes(200, json, nextCursor === '' ? {} : nextLink(canonicalPathOf(request), next));
    },
  }),
  route({
    method: 'GET',
    path: `${path}/{height}/proof`,
    id: 'getProof',
    summary: 'Prove what a commit stored',
    description:
      'The hashes of all that it stored, of the link before and of the one after it. With `id` also the document that it ' +
      'stored under that id, with its text where it is still stored.',
    tag: 'Commits',
    auth,
    query: z.strictObject({ id: z.string().min(1).max(1_024).optional().describe('Id of a document of the commit') }),
    responses: {
      200: {
        description: 'The proof',
        schema: commitSchema.extend({
          app_id: z.string().describe('The application'),
          previous_hash: hashSchema.describe('The commit hash of the link before; zeros for the first'),
          next: z
            .object({
              height: z.int().describe('Its height'),
              hash: hashSchema.describe('Its commit hash'),
              content_hash: hashSchema.describe('The hash of what it stored'),
            })
            .nullable()
            .describe('The link after it, null for the last'),
          documents: z.array(entrySchema).describe('All that it stored, in order'),
          document: entrySchema
            .extend({ place: z.int().describe('Its place in `documents`'), text: textSchema })
            .optional()
            .describe('The document that was asked for; of several with the id the last'),
        }),
        example: {
          app_id: 'demo',
          ...exampleCommit,
          previous_hash: hash('2f'),
          next: null,
          documents: [exampleEntry],
          document: { ...exampleEntry, place: 0, text: '{"id":"a","text":"Hello again"}' },
        },
      },
      404: {
        description: 'There is no such commit, or it stored no such document',
        codes: ['COMMIT_NOT_FOUND', 'DOCUMENT_NOT_FOUND'],
      },
    },
    handle: async ({ clients }, { path: { app_id: appId, height }, query, call }) => {
      const { json } = await clients.data.commitProof({ appId, height, id: query.id ?? '' }, call);
      return jsonBytes(200, json);
    },
  }),
];
