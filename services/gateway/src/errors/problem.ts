import { ServiceError, type ErrorDetails, type StatusName } from '@granary/shared/errors';
import { JsonError } from '@granary/shared/json/error';
import { fromJsonError } from '@granary/shared/json/service-error';
import { codes, isCode } from './codes';

/** An error as it is answered. Only this file and `codes` map errors to HTTP statuses. */
export interface Problem {
  status: number;
  code: string;
  message: string;
  details: ErrorDetails;
  headers: Record<string, string>;
}

const statusByCode: Record<StatusName, number> = {
  INVALID_ARGUMENT: 400,
  UNAUTHENTICATED: 401,
  PERMISSION_DENIED: 403,
  NOT_FOUND: 404,
  ALREADY_EXISTS: 409,
  FAILED_PRECONDITION: 409,
  ABORTED: 409,
  OUT_OF_RANGE: 400,
  RESOURCE_EXHAUSTED: 429,
  UNIMPLEMENTED: 501,
  UNAVAILABLE: 503,
  DEADLINE_EXCEEDED: 504,
  CANCELLED: 503,
  INTERNAL: 500,
};

const retryAfterSeconds = '1';

/** The answer to an error; undefined for an unexpected one, which is a bug and not described to callers. */
export function problemOf(error: unknown): Problem | undefined {
  if (error instanceof ServiceError) {
    if (error.code === 'INTERNAL') return internalProblem;
    const status = isCode(error.reason) ? codes[error.reason].status : statusByCode[error.code];
    const problem = { status, code: error.reason, message: error.message, details: error.details };
    return { ...problem, headers: headersFor(status) };
  }
  if (error instanceof JsonError) return problemOf(fromJsonError(error, 'The body is not valid', error.path ?? 'body'));
  if (error instanceof URIError) return problemOf(malformedUrl());
  return undefined;
}

export const internalProblem: Problem = {
  status: 500,
  code: 'INTERNAL',
  message: 'Internal server error',
  details: {},
  headers: {},
};

function headersFor(status: number): Record<string, string> {
  if (status === 429 || status === 503) return { 'Retry-After': retryAfterSeconds };
  // The rest of the request may still arrive, and must not be parsed as the next one.
  if (status === 408) return { Connection: 'close' };
  if (status === 401) return { 'WWW-Authenticate': 'Bearer realm="granary"' };
  return {};
}

/** The JSON text of a problem. */
export function problemText(problem: Problem): string {
  return JSON.stringify({ error: problem.message, code: problem.code, details: problem.details });
}

export function malformedJson(message: string): ServiceError {
  return new ServiceError('INVALID_ARGUMENT', 'MALFORMED_JSON', message);
}

export function malformedUrl(): ServiceError {
  return new ServiceError('INVALID_ARGUMENT', 'MALFORMED_URL', 'The URL holds a malformed percent-encoding');
}

export function unauthenticated(message: string): ServiceError {
  return new ServiceError('UNAUTHENTICATED', 'UNAUTHENTICATED', message);
}

export function methodNotAllowed(allowed: readonly string[]): ServiceError {
  const message = `The method is not allowed here; allowed are ${allowed.join(', ')}`;
  return new ServiceError('INVALID_ARGUMENT', 'METHOD_NOT_ALLOWED', message, { details: { allowed } });
}

export function tooLarge(limitBytes: number): ServiceError {
  const message = `The body is larger than the limit of ${limitBytes} bytes`;
  return new ServiceError('INVALID_ARGUMENT', 'PAYLOAD_TOO_LARGE', message, { details: { limit_bytes: limitBytes } });
}

/** The error for a body whose size has to be known before it is read. */
export const lengthRequired = (message: string): ServiceError =>
  new ServiceError('INVALID_ARGUMENT', 'LENGTH_REQUIRED', message);

export function unsupportedMediaType(expected: readonly string[]): ServiceError {
  const message = `The content type must be ${expected.join(' or ')}`;
  return new ServiceError('INVALID_ARGUMENT', 'UNSUPPORTED_MEDIA_TYPE', message, { details: { expected } });
}

export function overloaded(): ServiceError {
  return new ServiceError('UNAVAILABLE', 'OVERLOADED', 'The server is overloaded; retry later');
}
