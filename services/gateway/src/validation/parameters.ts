import { z } from 'zod';

/** A whole number in a query string. */
export const wholeParameter = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.int().min(min).max(max));

/** `true` or `false` in a query string. */
export const flagParameter = z
  .enum(['true', 'false'])
  .transform((text) => text === 'true')
  .pipe(z.boolean());

/** `limit` and `offset` of a list. */
export const pageQuery = z.strictObject({
  limit: wholeParameter(1, 10_000).default(100).describe('Records of the page, at most'),
  offset: wholeParameter(0, 1_000_000).default(0).describe('Records to skip before the page'),
});

/** The reserved parameters of the reads by URL that page. */
export const recordsQuery = z.object({
  limit: wholeParameter(1, 10_000).default(100).describe('Records of the page, at most'),
  offset: wholeParameter(0, 1_000_000).default(0).describe('Records to skip before the page'),
  cursor: z
    .string()
    .optional()
    .describe('`next_cursor` of the page before, with the same filter and order; instead of `offset`'),
  count: z
    .enum(['exact', 'none'])
    .default('exact')
    .describe('`none`: `total` is null unless it is known without counting'),
});
const fieldList = '^([^,.]+([.,][^,.]+)*)?$';
/** The reserved parameters of the paged reads by URL whose order and fields the caller chooses. */
export const selectableQuery = recordsQuery.extend({
  sort: z
    .string()
    .optional()
    .meta({ pattern: fieldList })
    .describe('Fields separated by commas; `-field` descends. Ties go by id'),
  select: z.string().optional().meta({ pattern: fieldList }).describe('The fields to return, separated by commas'),
});
