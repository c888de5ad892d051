import { ServiceError } from '../errors';
import type { Logger } from '../logger';
import { toServiceError } from './status';
import type { Call } from './types';

export type AnyHandler = (request: unknown, call: Call) => Promise<unknown>;

export const deadlinePassed = () =>
  new ServiceError('DEADLINE_EXCEEDED', 'DEADLINE_EXCEEDED', 'The request took too long');

/**
 * Runs one handler the way both transports do: nothing runs after its deadline, and only a ServiceError comes out.
 */
export async function runHandler(
  handler: AnyHandler,
  request: unknown,
  call: Call,
  log: Logger,
  method: string,
): Promise<unknown> {
  try {
    if (Date.now() >= call.deadlineMs) throw deadlinePassed();
    return await handler(request, call);
  } catch (error) {
    throw toServiceError(error, log, call.requestId, method);
  }
}

/** Waits for a result no longer than the deadline of the call. */
export async function withinDeadline<T>(call: Call, result: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(deadlinePassed()), Math.max(0, call.deadlineMs - Date.now()));
  });
  try {
    return await Promise.race([result, late]);
  } finally {
    clearTimeout(timer);
  }
}
