import type { ServiceDefinition } from '@grpc/grpc-js';
import type { MethodDefinition } from '@grpc/proto-loader';
import type { ServiceName } from '../trust/services';
import { neverAborted, type CancelSignal } from '../concurrency/cancellation';

export type { ServiceDefinition };

/** The context of every call, beside its message. */
export interface Call {
  requestId: string;
  /** Deadline, in milliseconds since the epoch. */
  deadlineMs: number;
  /** Aborted when the caller has gone or the deadline has passed. */
  signal: CancelSignal;
  /** The calling service, from its token; absent for a call within the process. */
  caller?: ServiceName | undefined;
  /** The traceparent of a call that is traced: see telemetry/trace.ts. */
  trace?: string | undefined;
}

type KnownMethods<D extends ServiceDefinition> = {
  [M in keyof D as string extends M ? never : number extends M ? never : M]: D[M];
};

/**
 * The methods of a service as functions. Both sides use the complete message (every field present, as the decoder
 * returns it): the encoder ignores unknown fields, so the compiler has to check that none is missing or misspelt.
 */
export type Methods<D extends ServiceDefinition> = {
  [
    M in keyof KnownMethods<D> as M extends string ? Uncapitalize<M> : never
  ]: KnownMethods<D>[M] extends MethodDefinition<infer _In, infer _Out, infer Request, infer Response>
    ? (request: Request, call: Call) => Promise<Response>
    : never;
};

/** The implementation of a service: one function for each method. */
export type Handlers<D extends ServiceDefinition> = Methods<D>;

/** The functions that a client calls: the methods of a service, in the same process or over the network. */
export type Client<D extends ServiceDefinition> = Methods<D>;

/** A new call with this timeout, bounded by the deadline of the call that it is part of. */
export function newCall(requestId: string, timeoutMs: number, within?: Call): Call {
  const deadlineMs = Math.min(Date.now() + timeoutMs, within?.deadlineMs ?? Infinity);
  return { requestId, deadlineMs, signal: within?.signal ?? neverAborted, trace: within?.trace };
}

/**
 * A message from fields that may be undefined where the message has them optional: those are left out, as a decoder
 * leaves them out.
 */
export function message<T extends object>(fields: {
  [K in keyof T]: object extends Pick<T, K> ? T[K] | undefined : T[K];
}): T {
  for (const key of Object.keys(fields) as Array<keyof T>) if (fields[key] === undefined) delete fields[key];
  return fields as unknown as T;
}
