import type { Idempotency } from '../gen/granary/idempotency/v1/Idempotency';

/** An Idempotency-Key with who used it for what, and the hash of what was sent. */
export interface IdempotencyKey {
  caller: string;
  method: string;
  path: string;
  key: string;
  contentHash: Buffer;
}

/** The key of a message, undefined when the caller sent none. */
export function toIdempotencyKey(message: Idempotency | null | undefined): IdempotencyKey | undefined {
  if (!message || message.key === '') return undefined;
  const { caller, method, path, key, contentHash } = message;
  return { caller, method, path, key, contentHash: Buffer.from(contentHash) };
}

export const sameKey = (a: IdempotencyKey, b: IdempotencyKey): boolean =>
  a.key === b.key && a.caller === b.caller && a.method === b.method && a.path === b.path;

/** The owner that the kept answers of a caller count for: `app/7` for all named keys of an app, `operator`. */
export const ownerOf = ({ caller }: Pick<IdempotencyKey, 'caller'>): string => caller.split('/', 2).join('/');
