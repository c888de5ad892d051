import { createHash } from 'node:crypto';

/** Only what is executed repeatedly gets a name. */
const usesBeforeName = 16;
const countedMax = 4_096;
/** Prepared statements of a connection: each takes some tens of kilobytes in Postgres. */
const preparedMax = 256;

/**
 * The names under which statements are prepared, so that Postgres parses and plans each once per connection. A rare
 * statement has none. Names are made of the text, which has no values, so a forgotten statement gets the same name
 * again.
 */
export class StatementNames {
  /** The least recently used is first, once as many are known as may be. */
  readonly #names = new Map<string, string>();
  readonly #uses = new Map<string, number>();

  constructor(private readonly max: number) {}

  nameOf(text: string): string | undefined {
    const name = this.#names.get(text);
    if (name === undefined) return this.#count(text);
    if (this.#names.size >= this.max) {
      this.#names.delete(text);
      this.#names.set(text, name);
    }
    return name;
  }

  #count(text: string): string | undefined {
    const used = (this.#uses.get(text) ?? 0) + 1;
    if (used < usesBeforeName) {
      if (this.#uses.size >= countedMax) this.#uses.clear();
      this.#uses.set(text, used);
      return undefined;
    }
    this.#uses.delete(text);
    const name = `s_${createHash('sha256').update(text).digest('hex').slice(0, 24)}`;
    if (this.#names.size >= this.max) this.#names.delete(this.#names.keys().next().value!);
    this.#names.set(text, name);
    return name;
  }
}

/** The statements that are prepared on one connection, or will be by what has been sent; at most 256. */
export class PreparedStatements {
  /** The least recently used is first. */
  readonly #names = new Set<string>();

  has(name: string): boolean {
    return this.#names.has(name);
  }

  /**
   * Records a use of a statement. Returns the name of the least recently used one where it must be closed to make room.
   */
  use(name: string): string | undefined {
    if (!this.#names.delete(name) && this.#names.size >= preparedMax) {
      const oldest = this.#names.values().next().value!;
      this.#names.delete(oldest);
      this.#names.add(name);
      return oldest;
    }
    this.#names.add(name);
    return undefined;
  }

  delete(name: string): void {
    this.#names.delete(name);
  }
}

/** Texts whose names are kept; each connection has the most recently used of them prepared. */
const namesMax = 1_024;
const names = new StatementNames(namesMax);

/** The name of a statement for the connections of pools, undefined for a rare one. */
export const statementName = (text: string): string | undefined => names.nameOf(text);
