/**
 * A parameter of a statement. It is sent as text, a buffer in the binary format of the parameter's type. Arrays are of
 * texts, for `$n::text[]` and other types that Postgres reads from text; large ones are sent cheaper by the functions
 * in `binary.ts`.
 */
export type StatementValue = string | number | bigint | boolean | null | Date | Buffer | readonly (string | null)[];

/** A parameter as it is sent: text, or bytes in binary format. */
export type WireValue = string | Buffer | null;

/** Throws TypeError for what is no `StatementValue`. */
export function toWireValue(value: unknown): WireValue {
  switch (typeof value) {
    case 'string':
      return value;
    case 'number':
    case 'bigint':
    case 'boolean':
      return String(value);
    case 'object':
      if (value === null || Buffer.isBuffer(value)) return value;
      if (value instanceof Date) return value.toISOString();
      if (Array.isArray(value)) return textArrayLiteral(value as ReadonlyArray<string | null>);
      break;
    default:
  }
  throw new TypeError('a parameter of a statement has a type that cannot be sent');
}

/** The literal of an array of texts, each quoted, so that none is read as NULL or as syntax. */
export function textArrayLiteral(values: ReadonlyArray<string | null>): string {
  const elements = values.map((value) => (value === null ? 'NULL' : `"${value.replace(/[\\"]/g, '\\$&')}"`));
  return `{${elements.join(',')}}`;
}
