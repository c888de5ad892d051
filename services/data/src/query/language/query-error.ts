import { invalid, type ServiceError } from '@granary/shared/errors';
import { LIMIT_EXCEEDED } from '../../catalog/definition-limit';

export const FIELD_NOT_INDEXED = 'FIELD_NOT_INDEXED';
export const INVALID_QUERY = 'INVALID_QUERY';

/** `at` is the place in the query, as the caller sees it. */
export function invalidQuery(at: string, message: string): ServiceError {
  return invalid(`The query is not valid: ${at} ${message}`, { [at]: [message] }, INVALID_QUERY);
}

export function overLimit(at: string, message: string): ServiceError {
  return invalid(`${at} ${message}`, { [at]: [message] }, LIMIT_EXCEEDED);
}
