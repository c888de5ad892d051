/** Items that wait, each under the key of whom it is for; taken from one key after the other. */
export interface FairQueue<T> {
  readonly size: number;
  sizeOf(key: string): number;
  add(key: string, item: T): void;
  /** Whether it was there. */
  remove(key: string, item: T): boolean;
  /** The oldest item of the key whose turn it is, passing over keys that are `held`. */
  take(held: (key: string) => boolean): T | undefined;
}

export function fairQueue<T>(): FairQueue<T> {
  // The order of the map is the order of the turns, the order of a set the order of arrival.
  const waiting = new Map<string, Set<T>>();
  let size = 0;

  const remove = (key: string, item: T) => {
    const items = waiting.get(key);
    if (!items?.delete(item)) return false;
    if (items.size === 0) waiting.delete(key);
    size--;
    return true;
  };

  return {
    get size() {
      return size;
    },
    sizeOf: (key) => waiting.get(key)?.size ?? 0,
    add: (key, item) => {
      const items = waiting.get(key);
      if (items) items.add(item);
      else waiting.set(key, new Set([item]));
      size++;
    },
    remove,
    take: (held) => {
      for (const [key, items] of waiting) {
        if (held(key)) continue;
        const item = items.values().next().value as T;
        remove(key, item);
        // A key that is alone has its turn again, wherever it stands.
        if (items.size > 0 && waiting.size > 1) {
          waiting.delete(key);
          waiting.set(key, items);
        }
        return item;
      }
      return undefined;
    },
  };
}
