import { createHash } from 'node:crypto';

/** Only what is asked for again and again is worth a name. */
const usesBeforeName = 16;
const countedMax = 4_096;

/**
 * The names under which statements are prepared, so that Postgres parses and plans each once for each connection. A
 * statement that is rare has none. The text decides: it holds no value of anybody.
 */
export class StatementNames {
  readonly #names = new Map<string, string>();
  readonly #uses = new Map<string, number>();

  /** At most `max` at a time. With `whenFull: 'forget'` the oldest gives way to a new one: for who closes what was prepared. */
  constructor(
    private readonly max: number,
    private readonly whenFull: 'refuse' | 'forget',
  ) {}

  nameOf(text: string): string | undefined {
    const known = this.#names.get(text);
    if (known !== undefined) return known;
    if (this.whenFull === 'refuse' && this.#names.size >= this.max) return undefined;
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

/** Each named statement takes memory on each connection of a pool that runs it, and nothing ever closes it there. */
const names = new StatementNames(256, 'refuse');

/** The name of a statement for the connections of pools; none for one that is rare, or once there are as many as may be. */
export const statementName = (text: string): string | undefined => names.nameOf(text);
