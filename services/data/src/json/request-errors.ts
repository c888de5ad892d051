import { ServiceError } from '@granary/shared/errors';
import { JsonError } from '@granary/shared/json/error';
import { fromJsonError, jsonErrorPath, translateJsonErrors } from '@granary/shared/json/service-error';

/**
 * The result of `read`. A JsonError that it throws becomes the error for the caller whose body was read; `base` is the
 * path of the text in the body.
 */
export const translateRequestErrors = <T>(read: () => T, base = ''): T =>
  translateJsonErrors(read, (error) => refusalOf(error, base));

/** The error for the caller whose body was read, in place of a JsonError; other errors stay as they are. */
export const requestError = (error: unknown): unknown => (error instanceof JsonError ? refusalOf(error, '') : error);

function refusalOf(error: JsonError, base: string): ServiceError {
  if (error.reason === 'TOO_LARGE')
    return new ServiceError('RESOURCE_EXHAUSTED', 'DOCUMENT_TOO_LARGE', error.message, { cause: error });
  const path = base === '' ? error.path : jsonErrorPath(base, error);
  return fromJsonError(error, 'The request is not valid', path || 'body');
}
