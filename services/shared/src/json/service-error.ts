import { invalid, ServiceError } from '../errors';
import { JsonError } from './error';

/**
 * The error for a caller whose JSON text was refused: MALFORMED_JSON if it is not JSON, otherwise VALIDATION_FAILED
 * with this message, and the rule that was broken at this path.
 */
export function fromJsonError(error: JsonError, message: string, path: string): ServiceError {
  switch (error.reason) {
    case 'MALFORMED':
    case 'INVALID_UTF8':
    case 'BYTE_ORDER_MARK':
      return new ServiceError('INVALID_ARGUMENT', 'MALFORMED_JSON', error.message, { cause: error });
    default:
      return invalid(message, { [path]: [error.message] });
  }
}

/** The path of a value in a text that has a name: `a.b` in `metadata` is `metadata.a.b`. */
export function jsonErrorPath(name: string, { path }: JsonError): string {
  return path === undefined || path === '' ? name : `${name}.${path}`;
}

/** Returns the result of `read`. A JsonError that it throws becomes the error that `translate` returns. */
export function translateJsonErrors<T>(read: () => T, translate: (error: JsonError) => ServiceError): T {
  try {
    return read();
  } catch (error) {
    throw error instanceof JsonError ? translate(error) : error;
  }
}
