import { hash } from 'node:crypto';
import { invalid } from '@granary/shared/errors';
import type { Idempotency } from '@granary/shared/gen/granary/idempotency/v1/Idempotency';
import { toText } from '@granary/shared/json/value';
import type { AppCaller, Operator, Wallet } from './access';
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

/** A caller that may repeat a request. */
type Repeater = AppCaller | Operator | Wallet;

/**
 * The name of the sender of an Idempotency-Key: the named key of an app, whose secret and id change when it is made
 * anew, the operator, or a wallet.
 */
export function callerName(caller: Repeater): string {
  if (caller.kind === 'app') return `app/${caller.appNumber}/${caller.keyName}`;
  return caller.kind === 'wallet' ? `wallet/${caller.address}` : 'operator';
}

/**
 * The identity of a request that may be repeated. The service refuses the same caller, method, path and key with
 * another content. A `content` that is a function is called only where there is a key.
 */
export function idempotency(
  request: RouteRequest<string, AppCaller | Operator>,
  content: Buffer | (() => Buffer),
): Idempotency {
  return idempotencyOf(request, idempotencyKey(request), () => (typeof content === 'function' ? content() : content));
}

/**
 * The identity of a request that a payment pays for. Its key consists of a word, a space, which no Idempotency-Key
 * header can have, and the ticket of the payment. The request is done once, whichever API key of the application sends
 * it.
 */
export function paidIdempotency(
  request: RouteRequest<string, AppCaller>,
  ticketId: string,
  content: () => Buffer,
): Idempotency {
  return idempotencyOf(request, paidKey(ticketId), content, paidCallerName(request.caller));
}

export const paidKey = (ticketId: string): string => `x402 ${ticketId}`;
export const paidCallerName = ({ appNumber }: AppCaller): string => `app/${appNumber}`;

/** The identity of a request to a route that takes JSON or no body: its content is its body and its query string. */
export const idempotencyOfJson = (request: RouteRequest<string, Repeater>): Idempotency =>
  idempotencyOf(request, idempotencyKey(request), () => jsonContent(request));

/** The identity of a paid request to a route that takes JSON or no body. */
export const paidIdempotencyOfJson = (request: RouteRequest<string, AppCaller>, ticketId: string): Idempotency =>
  paidIdempotency(request, ticketId, () => jsonContent(request));

function jsonContent({ jsonTree: tree, incoming }: RouteRequest): Buffer {
  const query = incoming.originalUrl.split('?')[1] ?? '';
  return Buffer.from(`${query}\n${toText(tree)}`);
}

function idempotencyOf(
  request: RouteRequest<string, Repeater>,
  key: string,
  content: () => Buffer,
  caller = callerName(request.caller),
): Idempotency {
  if (key === '') return { caller: '', method: '', path: '', key, contentHash: Buffer.alloc(0) };
  const { incoming } = request;
  const contentHash = hash('sha256', content(), 'buffer');
  return { caller, method: incoming.method, path: canonicalPathOf(request), key, contentHash };
}
