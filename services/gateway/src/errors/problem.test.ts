import { ServiceError, type StatusName } from '@granary/shared/errors';
import { JsonError } from '@granary/shared/json/error';
import { problemOf, problemText, tooLarge } from './problem';

const statusOf = (code: StatusName, reason: string) => problemOf(new ServiceError(code, reason, 'text'))?.status;

test.each<[StatusName, string, number]>([
  ['INVALID_ARGUMENT', 'VALIDATION_FAILED', 400],
  ['UNAUTHENTICATED', 'UNAUTHENTICATED', 401],
  ['PERMISSION_DENIED', 'FORBIDDEN', 403],
  ['NOT_FOUND', 'COLLECTION_NOT_FOUND', 404],
  ['ALREADY_EXISTS', 'ALREADY_EXISTS', 409],
  ['ALREADY_EXISTS', 'UNIQUE_VIOLATION', 409],
  ['FAILED_PRECONDITION', 'LOCKED_BALANCE_DECREASE', 409],
  ['ABORTED', 'CONFLICT', 409],
  ['RESOURCE_EXHAUSTED', 'RESULT_TOO_LARGE', 413],
  ['INVALID_ARGUMENT', 'SCHEMA_VIOLATION', 422],
  ['RESOURCE_EXHAUSTED', 'RATE_LIMITED', 429],
  ['UNIMPLEMENTED', 'NOT_IMPLEMENTED', 501],
  ['UNAVAILABLE', 'UNAVAILABLE', 503],
  ['DEADLINE_EXCEEDED', 'DEADLINE_EXCEEDED', 504],
])('%s with reason %s is answered with %i', (code, reason, status) => {
  expect(statusOf(code, reason)).toBe(status);
});

test('a caller that should come back later is told when', () => {
  for (const code of ['UNAVAILABLE', 'RESOURCE_EXHAUSTED'] as const) {
    expect(problemOf(new ServiceError(code, 'BUSY', 'text'))?.headers).toEqual({ 'Retry-After': '1' });
  }
});

test('nothing of an internal error is shown', () => {
  const secret = new ServiceError('INTERNAL', 'SECRET_REASON', 'select password', { details: { host: 'db1' } });
  expect(problemText(problemOf(secret)!)).toBe('{"error":"Internal server error","code":"INTERNAL","details":{}}');
});

test('an error that is not ours is a bug, not an answer', () => {
  expect(problemOf(new TypeError('x is not a function'))).toBeUndefined();
});

test('text that is no JSON, and JSON that breaks a rule, are different errors; the second names the place', () => {
  expect(problemOf(new JsonError('MALFORMED', 3, 'Expected a value'))).toMatchObject({ code: 'MALFORMED_JSON' });
  expect(problemOf(new JsonError('DUPLICATE_KEY', 9, 'twice', 'data[3].address.city'))).toMatchObject({
    status: 400,
    code: 'VALIDATION_FAILED',
    details: { 'data[3].address.city': ['twice'] },
  });
});

test('a body that is too large names the limit', () => {
  const problem = problemOf(tooLarge(65_536))!;
  expect(problem).toMatchObject({ status: 413, details: { limit_bytes: 65_536 } });
  expect(problem.message).toContain('65536');
});
