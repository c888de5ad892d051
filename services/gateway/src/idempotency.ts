import { hash } from 'node:crypto';
import { invalid } from '@granary/shared/errors';
import type { Idempotency } from '@granary/shared/gen/granary/data/v1/Idempotency';
import type { AppCaller, Operator } from './auth';
import type { RouteRequest } from './route';

/** The header, for the document of a route that understands it. */
export const idempotencyHeader = {
  'Idempotency-Key': {
    description:
      'Makes the request safe to repeat: the same key and content get the same answer for 24 hours, other content is ' +
      'refused. 1 to 255 visible ASCII characters',
    pattern: '^[!-~]{1,255}$',
    minLength: 1,
    maxLength: 255,
    example: 'order-4711',
  },
};

/** The Idempotency-Key of a request, empty when there is none. Throws VALIDATION_FAILED. */
export function idempotencyKey(request: Pick<RouteRequest, 'incoming'>): string {
  const key = request.incoming.headers['idempotency-key'];
  if (key === undefined) return '';
  if (typeof key === 'string' && /^[\x21-\x7e]{1,255}$/.test(key)) return key;
  throw invalid('The Idempotency-Key is not valid', {
    'Idempotency-Key': ['must be 1 to 255 visible ASCII characters'],
  });
}

/** The header of an answer that was given before: the request changed nothing this time. */
export const replayedHeader = (isReplayed: boolean): Record<string, string> =>
  isReplayed ? { 'Idempotency-Replayed': 'true' } : {};

/** Who repeats what: the same caller, method, path and key with another content is refused by the service. */
export function idempotency(request: RouteRequest<string, AppCaller | Operator>, content: Buffer): Idempotency {
  const key = idempotencyKey(request);
  return {
    caller: request.caller.kind === 'app' ? request.caller.keyId : 'operator',
    method: request.incoming.method,
    path: request.canonicalPath,
    key,
    contentHash: key === '' ? Buffer.alloc(0) : hash('sha256', content, 'buffer'),
  };
}
