import { exitCodeOf, Failure, UsageError } from './failure.ts';

const refused = (code: string, status: number) =>
  Object.assign(new Error('refused'), { name: 'GranaryError', code, status });

test.each([
  [new UsageError('wrong'), 2],
  [new Failure('no', { exitCode: 4 }), 4],
  [new Failure('no'), 1],
  [new Error('a defect'), 1],
  [refused('UNAUTHENTICATED', 401), 3],
  [refused('FORBIDDEN', 403), 3],
  [refused('COLLECTION_NOT_FOUND', 404), 4],
  [refused('CURSOR_GONE', 410), 4],
  [refused('CURSOR_GONE', 0), 4],
  [refused('PRECONDITION_FAILED', 412), 5],
  [refused('PAYMENT_REQUIRED', 402), 6],
  [refused('NETWORK_ERROR', 0), 7],
  [refused('OVERLOADED', 503), 7],
  [refused('VALIDATION_FAILED', 400), 1],
])('%s has its exit code', (error, code) => {
  expect(exitCodeOf(error)).toBe(code);
});
