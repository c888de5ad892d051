import { z } from 'zod';
import { json, type Answer } from '../http/answer';
import { canonicalPathOf, type RouteRequest } from './route';
import { wholeParameter } from '../validation/parameters';

/** Entries of a page, at most; more may be asked for, and the page says that there is another. */
const pageMax = 1_000;

/** Parameters of a listing. Others are ignored, as they were before listings had any. */
export const listingQuery = z.object({
  limit: wholeParameter(1, 10_000).optional().describe(`Entries of the page, at most; a page has ${pageMax} or 1 MiB`),
  cursor: z.string().max(2_000).optional().describe('Of the page before: `next_cursor`, or from its header `Link`'),
});
type ListingQuery = z.output<typeof listingQuery>;

/** Parameters of a list that only grows, the newest first. */
export const newestFirstQuery = z.strictObject({
  limit: wholeParameter(1, pageMax).default(100).describe('Entries of the page, at most'),
  cursor: z.string().min(1).max(2_000).optional().describe('`next_cursor` of the page before'),
});

/** The headers of a listing, for the document. */
export const listingHeaders = {
  Link: 'Where there is more: the next page, as `</api/…>; rel="next"`',
};

export const nextCursorSchema = z.string().optional().describe('Where there is more: the `cursor` of the next page');

/** The limit and the cursor of a query for a listing, where it has them. */
export const listing = (query: ListingQuery): { limit?: number; cursor?: string } => ({
  ...(query.limit !== undefined && { limit: query.limit }),
  ...(query.cursor !== undefined && { cursor: query.cursor }),
});

/** 200 with a page of a listing, and the link to the next one. */
export function listed(request: RouteRequest<string, unknown, ListingQuery>, value: unknown, next: string): Answer {
  return json(
    200,
    value,
    next === '' ? {} : nextLink(canonicalPathOf(request), { limit: request.query.limit, cursor: next }),
  );
}

/** `Link` to the next page of a list. */
export function nextLink(path: string, parameters: Record<string, string | number | undefined>): { Link: string } {
  const searchParams = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    if (value !== undefined) searchParams.set(name, String(value));
  return { Link: `</api${path}?${searchParams.toString()}>; rel="next"` };
}
