import { ServiceError } from '../errors';
import type { Logger } from '../logger';
import { inSpan, methodMetrics } from '../telemetry/rpc';
import { LinkedCancellation } from '../concurrency/cancellation';
import { startDeadline, cancelDeadline } from '../concurrency/deadlines';
import { toServiceError } from './status';
import type { Call } from './types';

export type AnyHandler = (request: unknown, call: Call) => Promise<unknown>;

export const deadlinePassed = () =>
  new ServiceError('DEADLINE_EXCEEDED', 'DEADLINE_EXCEEDED', 'The request took too long');

/**
 * Runs a handler for either transport: not after its deadline, and it throws nothing but a ServiceError.
 */
export async function runHandler(
  handler: AnyHandler,
  request: unknown,
  call: Call,
  log: Logger,
  method: string,
): Promise<unknown> {
  const metrics = methodMetrics(method, 'server');
  const beganAtMs = metrics.begin();
  try {
    if (Date.now() >= call.deadlineMs) throw deadlinePassed();
    const result = await inSpan(method, call, (within) => handler(request, within));
    metrics.end(beganAtMs, 'OK');
    return result;
  } catch (error) {
    const serviceError = toServiceError(error, log, call.requestId, method);
    metrics.end(beganAtMs, serviceError.code);
    throw serviceError;
  }
}

/**
 * Runs a handler for a caller in the same process, which waits no longer than the deadline. The deadline also aborts
 * the signal of the call, as it does over the network.
 */
export function runWithinDeadline(
  handler: AnyHandler,
  request: unknown,
  call: Call,
  log: Logger,
  method: string,
): Promise<unknown> {
  const signal = new LinkedCancellation(call.signal);
  const result = runHandler(handler, request, { ...call, signal }, log, method);
  return new Promise((resolve, reject) => {
    const deadline = startDeadline(call.deadlineMs - Date.now(), () => {
      reject(deadlinePassed());
      signal.abort();
    });
    result.then(
      (value) => {
        cancelDeadline(deadline);
        resolve(value);
      },
      (error: Error) => {
        cancelDeadline(deadline);
        reject(error);
      },
    );
  });
}
