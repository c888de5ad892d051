const compactAfter = 1_024;

/** A first-in, first-out queue whose `shift` takes constant time. */
export class Queue<T> {
  #items: (T | undefined)[] = [];
  #first = 0;

  get size(): number {
    return this.#items.length - this.#first;
  }

  push(item: T): void {
    this.#items.push(item);
  }

  first(): T | undefined {
    return this.#items[this.#first];
  }

  shift(): T | undefined {
    const item = this.#items[this.#first];
    if (item === undefined) return undefined;
    this.#items[this.#first++] = undefined;
    if (this.#first === this.#items.length) {
      this.#items.length = 0;
      this.#first = 0;
    } else if (this.#first === compactAfter) {
      this.#items.splice(0, compactAfter);
      this.#first = 0;
    }
    return item;
  }

  /** Removes and returns all items. */
  drain(): T[] {
    const items = this.#items.slice(this.#first) as T[];
    this.#items = [];
    this.#first = 0;
    return items;
  }
}
