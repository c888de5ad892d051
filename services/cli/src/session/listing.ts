import type { App } from '@granary/client';

export interface ListingOptions {
  signal: AbortSignal;
  query?: Record<string, string | undefined>;
  /** So many of them, at most. */
  most?: number | undefined;
}

/** The most that the service answers at once. */
const pageSize = 1_000;

/** The items of a listing, page by page: `member` of the answers, or these themselves where they are lists. */
export async function allOf<T>(
  app: App,
  path: string,
  member: string | undefined,
  { signal, query, most = Infinity }: ListingOptions,
): Promise<T[]> {
  const items: T[] = [];
  const pages = app.pages<Record<string, T[]>>(path, {
    query: { ...query, limit: Math.min(most, pageSize) },
    signal,
  });
  for await (const page of pages) {
    items.push(...((member === undefined ? page : page[member]) as T[]));
    if (items.length >= most) break;
  }
  return items.slice(0, most);
}
