import { granary, GranaryError, type App, type ChangeEvent, type ErrorCode } from '@granary/client';

/** An app for the checks: it is empty, and the key may do everything. */
export interface Target {
  url: string;
  app: string;
  key: string;
}

export interface Book {
  title: string;
  year: number;
  price?: number;
  tags?: string[];
  author?: { name: string; born?: number };
}

export interface Library {
  collections: { books: { document: Book } };
  views: { per_year: { row: { year: number; books: number }; variables: { from: number } } };
  queries: { books_since: { row: Book & { id: string }; parameters: { year: number } } };
}

/** Runs in Node and in browsers alike, so it has no library for assertions. */
export function equal(actual: unknown, expected: unknown): void {
  const [one, other] = [text(actual), text(expected)];
  if (one !== other) throw new Error(`is ${one}\nand not ${other}`);
}

const text = (value: unknown): string =>
  JSON.stringify(value, (_, member: unknown) => {
    if (typeof member !== 'object' || member === null || Array.isArray(member)) return member;
    return Object.fromEntries(Object.entries(member).sort(([one], [other]) => (one < other ? -1 : 1)));
  }) ?? 'undefined';

export async function refused(code: ErrorCode, work: () => Promise<unknown>): Promise<GranaryError> {
  const error: unknown = await work().then(
    () => new Error('nothing was refused'),
    (reason: unknown) => reason,
  );
  if (error instanceof GranaryError && error.code === code) return error;
  throw new Error(`not ${code}, but ${String(error)}`, { cause: error });
}

export const open = (target: Target): App<Library> => granary<Library>(target);

export const shelf: Array<Book & { id: string }> = [
  { id: 'b1', title: 'Emma', year: 1815, price: 9.5, tags: ['novel'], author: { name: 'Jane Austen', born: 1775 } },
  { id: 'b2', title: 'Ulysses', year: 1922, price: 20, author: { name: 'James Joyce' } },
  { id: 'b3', title: 'Nostromo', year: 1904 },
];

export async function withShelf(target: Target): Promise<App<Library>> {
  const app = open(target);
  await app.collection('books').store(shelf);
  return app;
}

/** The first so many events of a feed. */
export async function take<D>(feed: AsyncIterable<ChangeEvent<D>>, count: number): Promise<Array<ChangeEvent<D>>> {
  const events: Array<ChangeEvent<D>> = [];
  for await (const event of feed) if (events.push(event) === count) break;
  return events;
}

export async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise((resolve) => setTimeout(resolve, 20));
}
