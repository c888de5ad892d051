import { invalid, type ServiceError } from '@granary/shared/errors';
import { shortened } from '@granary/shared/shortened';
import { LIMIT_EXCEEDED } from '../../catalog/definition-limit';

export const FIELD_NOT_INDEXED = 'FIELD_NOT_INDEXED';
export const INVALID_QUERY = 'INVALID_QUERY';

/** Characters of a place or a message: names and paths in them are the caller's, and may be as long as the request. */
const placeLengthMax = 200;
const messageLengthMax = 500;

/** `location` is the place in the query, as the caller sees it. */
export function invalidQuery(location: string, message: string): ServiceError {
  const [place, text] = [shortened(location, placeLengthMax), shortened(message, messageLengthMax)];
  return invalid(`The query is not valid: ${place} ${text}`, { [place]: [text] }, INVALID_QUERY);
}

export function overLimit(location: string, message: string): ServiceError {
  const place = shortened(location, placeLengthMax);
  return invalid(`${place} ${message}`, { [place]: [message] }, LIMIT_EXCEEDED);
}
