/** Why a JSON text was refused. All but MALFORMED stand for one rule each, so that a caller can use its own message. */
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
 * A JSON text, or a value in it, was refused. `offset` is in bytes from the start of the buffer, `message` is for a
 * person, and `path` is that of the value (`data[3].address.city`; undefined at the root).
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
