import { invalid } from '@granary/shared/errors';

/** A part of a list. */
export interface PageRequest {
  limit: number;
  offset: number;
}

export interface Page<T> {
  items: T[];
  /** The number of items in the whole list. */
  total: bigint;
}

export const pageSizeMax = 10_000;

/** Throws INVALID_ARGUMENT unless 0 <= limit <= pageSizeMax and 0 <= offset. */
export function checkPage({ limit, offset }: PageRequest): PageRequest {
  if (limit < 0 || limit > pageSizeMax) {
    throw invalid('The limit is out of bounds', { limit: [`must be from 0 to ${pageSizeMax}`] });
  }
  if (offset < 0) throw invalid('The offset is out of bounds', { offset: ['must not be negative'] });
  return { limit, offset };
}

/**
 * A page from the rows of `total left join page`: each carries the total, and an empty page is one row without an
 * item, see `isItem`.
 */
export function splitPage<T>(found: Array<T & { total: bigint }>, isItem: (row: T) => boolean): Page<T> {
  return { items: found.filter(isItem), total: found[0]!.total };
}
