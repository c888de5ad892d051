import { Backoff, pause } from '@granary/shared/concurrency/backoff';
import { unavailable } from '@granary/shared/errors';
import { storageFull } from '@granary/shared/health/storage-monitor';

/** The store failed or is overloaded: a status 408, 429 or 5xx, or a timeout. The same request may succeed later. */
export class StoreFailure extends Error {
  override readonly name = 'StoreFailure';
}

/** The store is full (507, XMinioStorageFull of MinIO). Retrying at once would not help. */
export class StoreFull extends Error {
  override readonly name = 'StoreFull';
}

const connectionErrors = new Set([
  'ECONNRESET',
  'ECONNREFUSED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EAI_AGAIN',
]);
const overloadErrors = new Set([
  'SlowDown',
  'ServiceUnavailable',
  'InternalError',
  'RequestTimeout',
  'OperationAborted',
]);

/** Errors of the configuration, which an operator has to correct. */
const refusals = new Set([
  'AccessDenied',
  'InvalidAccessKeyId',
  'SignatureDoesNotMatch',
  'RequestTimeTooSkewed',
  'NoSuchBucket',
]);

/** Whether an operator has to correct what the store answers with this code. */
export const isRefusal = (code: string): boolean => refusals.has(code);

const delays = { firstMs: 100, maxMs: 4_000 };

/** The code of an error of S3 or Node; empty when it has none. */
export const codeOf = (error: unknown): string => (error as { code?: string } | undefined)?.code ?? '';

/** The client wraps what the source of its keys throws. */
export function reasonOf(error: unknown): unknown {
  return error instanceof Error && error.message.startsWith('Unable to get credentials') ? error.cause : error;
}

function isTransient(error: unknown): boolean {
  return error instanceof StoreFailure || connectionErrors.has(codeOf(error)) || overloadErrors.has(codeOf(error));
}

/**
 * Retries a call with exponential backoff and jitter while its errors are transient, for `retryMs` at most. Throws
 * UNAVAILABLE after that, STORAGE_FULL when the store is full, and other errors as they are.
 */
export async function retried<T>(call: () => Promise<T>, retryMs: number): Promise<T> {
  const deadlineMs = performance.now() + retryMs;
  const backoff = new Backoff(delays);
  for (;;) {
    try {
      return await call();
    } catch (thrown) {
      const error = reasonOf(thrown);
      if (error instanceof StoreFull) throw storageFull('objects', error);
      if (isRefusal(codeOf(error))) throw unavailable('The object store refuses the service', error);
      if (!isTransient(error)) throw error;
      const delayMs = backoff.nextMs();
      if (performance.now() + delayMs > deadlineMs) throw unavailable('The object store cannot be reached', error);
      await pause(delayMs);
    }
  }
}
