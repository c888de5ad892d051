import { hash } from 'node:crypto';
import { invalid } from '@granary/shared/errors';
import type { Idempotency } from '@granary/shared/gen/granary/idempotency/v1/Idempotency';
import { toText } from '@granary/shared/json/value';
import type { AppCaller, Operator } from './access';
import { canonicalPathOf, type RouteRequest } from './route';

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

/** Who sends a key: the named key of an app, whose secret and id change when it is made anew, or the operator. */
export const callerName = (caller: AppCaller | Operator): string =>
  caller.kind === 'app' ? `app/${caller.appNumber}/${caller.keyName}` : 'operator';

/**
 * Who repeats what: the same caller, method, path and key with another content is refused by the service. A content that
 * is a function is made only where there is a key.
 */
export function idempotency(
  request: RouteRequest<string, AppCaller | Operator>,
  content: Buffer | (() => Buffer),
): Idempotency {
  return idempotencyOf(request, idempotencyKey(request), () => (typeof content === 'function' ? content() : content));
}

/** The same for a route that takes JSON or no body: its content is its body and its query string. */
export function idempotencyOfJson(request: RouteRequest<string, AppCaller | Operator>): Idempotency {
  const { jsonTree: tree, incoming } = request;
  const query = incoming.originalUrl.split('?')[1] ?? '';
  return idempotencyOf(request, idempotencyKey(request), () => Buffer.from(`${query}\n${toText(tree)}`));
}

function idempotencyOf(
  request: RouteRequest<string, AppCaller | Operator>,
  key: string,
  content: () => Buffer,
): Idempotency {
  if (key === '') return { caller: '', method: '', path: '', key, contentHash: Buffer.alloc(0) };
  const { caller, incoming } = request;
  const contentHash = hash('sha256', content(), 'buffer');
  return { caller: callerName(caller), method: incoming.method, path: canonicalPathOf(request), key, contentHash };
}
