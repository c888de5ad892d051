import type { Response } from 'express';
import type { Cancellation } from '@granary/shared/concurrency/cancellation';
import type { Span } from '@granary/shared/telemetry/trace';

/** What is known about one request while it is answered; in `response.locals`. */
export interface Exchange {
  readonly requestId: string;
  readonly startedAtMs: number;
  /** What every answer to it says: names and values in turn. */
  readonly headers: readonly string[];
  /** Aborted when the client has gone before it had its answer. */
  readonly gone: Cancellation;
  /** Of a request that is traced. */
  span: Span | undefined;
  /** The path of the route, without values. */
  route: string | undefined;
  appId: string | undefined;
  /** Public code of the error that was answered. */
  code: string | undefined;
  /** A caller with a key or a signature: the answer is for nobody else. */
  isPrivate: boolean;
  /** Methods that the path answers, collected while none of its routes was for this one. */
  allowed: Set<string> | undefined;
}

export function exchangeOf(response: Response): Exchange {
  return response.locals as Exchange;
}
