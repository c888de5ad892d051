/** Why a JSON text was refused. Everything but MALFORMED names one rule, so that a caller can answer with its own text. */
export type JsonErrorReason =
  | 'MALFORMED'
  | 'INVALID_UTF8'
  | 'BYTE_ORDER_MARK'
  | 'NUL_CHARACTER'
  | 'LONE_SURROGATE'
  | 'TOO_DEEP'
  | 'TOO_LARGE'
  | 'DUPLICATE_KEY'
  | 'FORBIDDEN_KEY'
  | 'NUMBER_OUT_OF_RANGE'
  | 'UNEXPECTED_TYPE'
  | 'NOT_AN_OBJECT'
  | 'INVALID_ID'
  | 'INVALID_SELECT';

/**
 * A JSON text, or a value in it, that is refused. `offset` counts bytes from the start of the buffer, `message` is
 * for a person, and `path` says where in the value it happened (`data[3].address.city`; undefined at its root).
 */
export class JsonError extends Error {
  override readonly name = 'JsonError';

  constructor(
    readonly reason: JsonErrorReason,
    readonly offset: number,
    message: string,
    readonly path?: string,
  ) {
    super(message);
  }
}
