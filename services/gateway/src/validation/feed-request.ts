import { z } from 'zod';
import { wholeParameter } from './parameters';
import { findSchema, nameSchema, selectSchema } from './schemas';

/** Subscriptions of one stream. */
const subscriptionsMax = 32;
/** Collections of one parameter. */
export const collectionsMax = 16;
/** Bytes of a filter. */
export const findBytesMax = 16 * 1024;

export const changesOfPageMax = 1_000;
const limitText = 'Changes of a JSON page, at most';
const waitText =
  'For a JSON page: how many seconds to wait where there is no change; it may be answered earlier, with a cursor to go on from';
const sinceText =
  '`now`, a height (`0`: everything, `41`: what follows commit 41) or the cursor of a change. The header `Last-Event-ID` ' +
  'takes its place';
const modeText = '`all`: every version; `latest`: each document once in a step, in its newest version';
const viewText =
  'Name of a live view with `changes`, in the place of collections: its changed rows, each in its newest state; `since=0` begins with all of them';
const documentsText = '`false`: without the documents, only their ids';

const cursorPattern = /^(now|[0-9]{1,15}([.][0-9]{1,9}([.][0-9]{1,15})?-[0-9a-f]{8}(~[0-9]{1,15}[.][0-9]{1,9})?)?)$/;
const cursorRule = 'must be now, a height or a cursor';

/** The parameters of a feed in a URL. */
export const feedQuery = z.strictObject({
  since: z.string().regex(cursorPattern, cursorRule).optional().describe(sinceText),
  collection: z
    .string()
    .min(1)
    .max(2_000)
    .optional()
    .describe(
      `Names of collections, separated by commas, at most ${collectionsMax}; without it all, which needs a key with \`Read\``,
    ),
  view: nameSchema.optional().describe(viewText),
  find: z.string().min(1).max(findBytesMax).optional().describe('A filter as JSON text, with exactly one collection'),
  select: z.string().min(1).max(findBytesMax).optional().describe('Fields separated by commas, or a selection as JSON'),
  documents: z.enum(['true', 'false']).optional().describe(documentsText),
  mode: z.enum(['all', 'latest']).optional().describe(modeText),
  wait: wholeParameter(0, 60).optional().describe(waitText),
  limit: wholeParameter(1, changesOfPageMax).optional().describe(limitText),
  token: z
    .string()
    .min(1)
    .max(8_192)
    .optional()
    .describe('A feed token, in place of a key and of all that it says itself'),
});

const subscriptionSchema = z.strictObject({
  as: nameSchema.describe('What the changes call it, in `as`'),
  collection: nameSchema.optional().describe('Name of the collection; without it all of the application'),
  view: nameSchema.optional().describe(viewText),
  find: findSchema.optional(),
  mode: z.enum(['all', 'latest']).optional().describe(modeText),
});

/** What subscriptions and tokens say. */
const subscribed = {
  subscriptions: z
    .array(subscriptionSchema)
    .min(1)
    .max(subscriptionsMax)
    .describe('A change comes once, with the names of those that it is for'),
  select: selectSchema.optional(),
  documents: z.boolean().optional().describe(documentsText),
};

export const subscribedSchema = z.strictObject(subscribed);
export type Subscribed = z.output<typeof subscribedSchema>;

export const feedBody = z.strictObject({
  since: z.string().regex(cursorPattern, cursorRule).optional().describe(sinceText),
  wait: z.int().min(0).max(60).optional().describe(waitText),
  limit: z.int().min(1).max(changesOfPageMax).optional().describe(limitText),
  ...subscribed,
});

export const feedTokenBody = z.strictObject({
  ttl_seconds: z.int().min(1).max(86_400).optional().describe('How long it is valid; by default ten minutes'),
  ...subscribed,
});
