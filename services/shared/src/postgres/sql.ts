/** A statement: text with `$n` in it, and the values. Built by the `sql` tag only. */
export class Sql {
  constructor(
    readonly strings: readonly string[],
    readonly parts: readonly unknown[],
  ) {}

  /**
   * The text with numbered parameters, and their values in order. Nested statements are flattened. `first` are the
   * values of parameters whose numbers the text has already.
   */
  compile(first: readonly unknown[] = []): { text: string; values: unknown[] } {
    const values = [...first];
    const write = (statement: Sql): string => {
      let text = statement.strings[0]!;
      statement.parts.forEach((part, index) => {
        text += part instanceof Sql ? write(part) : `$${values.push(part)}`;
        text += statement.strings[index + 1]!;
      });
      return text;
    };
    return { text: write(this), values };
  }
}

/** A tagged SQL statement: every interpolated value becomes a parameter, an interpolated `Sql` is inlined. */
export function sql(strings: TemplateStringsArray, ...parts: unknown[]): Sql {
  return new Sql(strings, parts);
}

/** Statements with a separator between them. */
export function join(statements: readonly Sql[], separator: string): Sql {
  if (statements.length === 0) return empty;
  return new Sql(['', ...statements.slice(1).map(() => separator), ''], statements);
}

export const empty = new Sql([''], []);

/**
 * SQL text that this code wrote itself. Never call it with anything that a caller of the service can influence;
 * names of tables and columns are made by the functions below, from numbers.
 */
export function trusted(text: string): Sql {
  return new Sql([text], []);
}

function number(value: bigint | number): string {
  const text = value.toString();
  if (!/^\d{1,19}$/.test(text)) throw new RangeError('a catalog number is expected');
  return text;
}

/** The name of an object made from numbers of the catalog, e.g. `named('a_', 3n, '.c_', 17n)` is `a_3.c_17`. */
export function named(...parts: ReadonlyArray<string | bigint>): Sql {
  return trusted(parts.map((part) => (typeof part === 'bigint' ? number(part) : part)).join(''));
}
