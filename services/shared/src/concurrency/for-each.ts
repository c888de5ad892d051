/** Runs `work` on each item, at most `limit` at a time. The first error ends it, once what is under way has settled. */
export async function forEachConcurrently<T>(
  limit: number,
  items: AsyncIterable<T> | Iterable<T>,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const source = toAsync(items);
  const errors: unknown[] = [];
  const worker = async (): Promise<void> => {
    while (errors.length === 0) {
      const next = await source.next();
      if (next.done === true) return;
      await work(next.value);
    }
  };
  const catching = () => worker().catch((error: unknown) => void errors.push(error));
  await Promise.all(Array.from({ length: limit }, catching));
  await source.return(undefined);
  if (errors.length > 0) throw errors[0];
}

async function* toAsync<T>(items: AsyncIterable<T> | Iterable<T>): AsyncGenerator<T, void, undefined> {
  yield* items;
}
