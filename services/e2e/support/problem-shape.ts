import type { RawAnswer } from './raw-http';

export interface Problem {
  error: string;
  code: string;
  details: Record<string, unknown>;
}

/** Words that only our insides know. */
const internals =
  /postgres|sqlstate|\brelation "|\bcolumn "|syntax error at|node_modules|\.ts\b|\.js:|\n\s+at |127\.0\.0\.1|localhost|\/services\/|\ba_\d+\.|\bc_\d+\b|ECONN|grpc/i;

const fieldCodes = new Set(['VALIDATION_FAILED', 'INVALID_QUERY', 'LIMIT_EXCEEDED', 'SCHEMA_VIOLATION']);

/** An error exactly as the contract shapes it, with nothing of our insides in it. */
export function expectProblem(answer: Pick<RawAnswer, 'status' | 'headers' | 'text' | 'json'>): Problem {
  expect(answer.headers['content-type']).toBe('application/json; charset=utf-8');
  expect(answer.headers['x-request-id']).toMatch(/^[A-Za-z0-9._-]{1,64}$/);
  const problem = answer.json as Problem;
  expect(Object.keys(problem)).toEqual(['error', 'code', 'details']);
  expect(problem.error).toMatch(/\S.{3,}/s);
  expect(problem.code).toMatch(/^[A-Z][A-Z0-9_]*[A-Z0-9]$/);
  expect(typeof problem.details === 'object' && problem.details !== null && !Array.isArray(problem.details)).toBe(true);
  expect(answer.text).not.toMatch(internals);
  if (fieldCodes.has(problem.code)) {
    for (const messages of Object.values(problem.details)) {
      expect(messages).toEqual(expect.arrayContaining([expect.stringMatching(/\S/)]));
    }
    // The sentence names the first detail, of a long one its beginning.
    const [first] = Object.values(problem.details as Record<string, string[]>);
    if (first) expect(problem.error).toContain(first[0]!.slice(0, 400));
  }
  if (answer.status === 401) expect(answer.headers['www-authenticate']).toBeDefined();
  if (answer.status === 405) expect(answer.headers['allow']).toMatch(/OPTIONS/);
  if (answer.status === 429 || answer.status === 503) expect(answer.headers['retry-after']).toMatch(/^\d+$/);
  return problem;
}
