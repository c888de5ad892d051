/** The outcome of an item of a batch. */
export type ItemResult<R> = { value: R } | { error: unknown };

export interface BatcherOptions<T, R> {
  /** Runs a batch: a result for each item, in order. If it rejects, every item of the batch fails with that error. */
  run: (items: readonly T[]) => Promise<Array<ItemResult<R>>>;
  /** The amount that an item counts towards `maxSize`; an item that is larger by itself is a batch of its own. */
  sizeOf: (item: T) => number;
  maxSize: number;
  /** The sum of the sizes that may wait; an item that would exceed it is refused at once. */
  maxWaiting: number;
  /** The error of an item that is refused. */
  refusal: () => Error;
}

interface Waiting<T, R> {
  item: T;
  size: number;
  resolve: (value: R) => void;
  reject: (error: unknown) => void;
}

/**
 * Group commit: items that are submitted in one turn of the event loop, or while a batch runs, share the next batch.
 * One batch runs at a time, in the order of arrival, so that batches grow with the load and a lone item never waits for
 * others.
 */
export class Batcher<T, R> {
  private waiting: Array<Waiting<T, R>> = [];
  private waitingSize = 0;
  private running: Promise<void> | undefined;

  constructor(private readonly options: BatcherOptions<T, R>) {}

  submit(item: T): Promise<R> {
    const { sizeOf, maxWaiting, refusal } = this.options;
    const size = sizeOf(item);
    if (this.waitingSize + size > maxWaiting) return Promise.reject(refusal());
    this.waitingSize += size;
    const result = new Promise<R>((resolve, reject) => this.waiting.push({ item, size, resolve, reject }));
    this.running ??= this.runAll();
    return result;
  }

  /** Resolves when nothing runs and nothing waits. */
  async idle(): Promise<void> {
    await this.running;
  }

  private async runAll(): Promise<void> {
    // The rest of this turn may submit more.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.waiting.length > 0) await this.runBatch(this.takeBatch());
    this.running = undefined;
  }

  private takeBatch(): Array<Waiting<T, R>> {
    let size = 0;
    let count = 0;
    for (const each of this.waiting) {
      if (count > 0 && size + each.size > this.options.maxSize) break;
      size += each.size;
      count += 1;
    }
    this.waitingSize -= size;
    return this.waiting.splice(0, count);
  }

  private async runBatch(batch: ReadonlyArray<Waiting<T, R>>): Promise<void> {
    try {
      const results = await this.options.run(batch.map(({ item }) => item));
      batch.forEach(({ resolve, reject }, index) => {
        const result = results[index]!;
        if ('value' in result) resolve(result.value);
        else reject(result.error);
      });
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
  }
}
