import type { Response } from 'express';
import type { Cancellation } from '@granary/shared/concurrency/cancellation';
import type { Span } from '@granary/shared/telemetry/trace';

/** The state of one request while it is processed; in `response.locals`. */
export interface RequestContext {
  readonly requestId: string;
  readonly startedAtMs: number;
  /** When a streamed answer began; its duration is that of its client. */
  streamedAtMs: number | undefined;
  /** Headers of every answer: names and values in turn. */
  readonly headers: readonly string[];
  /** Aborted when the client disconnects before it has the answer. */
  readonly cancellation: Cancellation;
  /** The span of a request that is traced. */
  span: Span | undefined;
  /** The path of the route, without values. */
  route: string | undefined;
  appId: string | undefined;
  /** Code of the error that was answered. */
  code: string | undefined;
  /** Whether the caller has authenticated: caches must not keep the answer. */
  isPrivate: boolean;
  /** Methods of routes that have this path but not the method of the request. */
  allowedMethods: Set<string> | undefined;
}

export function requestContextOf(response: Response): RequestContext {
  return response.locals as RequestContext;
}
