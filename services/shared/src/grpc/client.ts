import {
  Client as GrpcClient,
  credentials,
  Metadata,
  status,
  type MethodDefinition,
  type ServiceDefinition,
  type ServiceError as GrpcError,
} from '@grpc/grpc-js';
import { isUnavailable, ServiceError, unavailable } from '../errors';
import type { Logger } from '../logger';
import { asOurFault } from '../trust/guard';
import { measuredCalls } from '../telemetry/rpc';
import { appOf, tokenHeader } from '../trust/token';
import type { CallCredentials } from '../trust/trust';
import { runWithinDeadline, type AnyHandler } from '../rpc/call';
import { messageBytesMax } from './message-size';
import type { Implementation } from '../rpc/implementation';
import { fromStatus } from '../rpc/status';
import { maxRequestBytes } from '../mux/protocol';
import { Backoff, pause } from '../concurrency/backoff';
import { MuxClient, type MuxClientCounts, type MuxClientOptions } from '../mux/client';
import type { Call, Client } from '../rpc/types';

/**
 * How a client reaches a service: in the same process, or at a gRPC address: `host:port`, `dns:///name:port`, or
 * several addresses separated by commas, see `grpcAddress`. Calls are balanced over all copies, round robin.
 */
export type Target<D extends ServiceDefinition> = { implementation: Implementation<D> } | { address: string };

/** The gRPC services of one process of ours: at an address, or in this process (`RunningService.implementations`). */
export type ServiceTarget = { address: string } | { implementations: Implementation[] };

/** How a client reaches one of these gRPC services. */
export function targetOf<D extends ServiceDefinition>(target: ServiceTarget, definition: D): Target<D> {
  if ('address' in target) return target;
  const firstPath = (service: ServiceDefinition) => Object.values(service)[0]?.path;
  const implementation = target.implementations.find((one) => firstPath(one.definition) === firstPath(definition));
  if (!implementation) throw new Error(`no implementation of ${firstPath(definition)}`);
  return { implementation: implementation as unknown as Implementation<D> };
}

export interface ClientOptions {
  log: Logger;
  /**
   * `() => trust.towards(…)`, called only for calls over the network. Without it they are neither signed nor encrypted.
   */
  credentials?: () => CallCredentials;
  /**
   * Idempotent methods, which are retried when the service was UNAVAILABLE: reads, and calls with a ticket or an id of
   * their own. All others are retried only if no copy of the service has accepted the call.
   */
  repeatable?: readonly string[];
  /** Methods whose calls are small and many: over the network they are multiplexed on one stream, see mux/. */
  multiplexed?: readonly string[];
  mux?: MuxClientOptions;
  retries?: Retries;
}

/** The limits of retries: a call is given up once both have been reached. */
export interface Retries {
  forMs: number;
  attemptsMin: number;
}

export interface OpenClient<D extends ServiceDefinition> {
  client: Client<D>;
  /** Counts of what the multiplexer has under way; undefined without multiplexed methods. */
  muxCounts(): MuxClientCounts | undefined;
  close(): void;
}

/** The typed client of a service. Errors are ServiceErrors and deadlines are enforced on either transport. */
export function openClient<D extends ServiceDefinition>(
  definition: D,
  target: Target<D>,
  options: ClientOptions,
): OpenClient<D> {
  const transport =
    'implementation' in target ? direct(target.implementation, options.log) : wire(target.address, options);
  const client: Record<string, AnyHandler> = {};
  for (const [name, method] of Object.entries(definition)) {
    const functionName = name[0]!.toLowerCase() + name.slice(1);
    const send = transport.method(functionName, method);
    const isRetryable = options.repeatable?.includes(functionName) ? isUnavailable : isNotAccepted;
    client[functionName] = withRetries(send, isRetryable, options.retries ?? usualRetries);
  }
  return {
    client: client as Client<D>,
    muxCounts: () => transport.muxCounts?.(),
    close: () => transport.close(),
  };
}

interface Transport {
  method(name: string, method: MethodDefinition<unknown, unknown>): AnyHandler;
  muxCounts?(): MuxClientCounts;
  close(): void;
}

function direct(implementation: Implementation, log: Logger): Transport {
  const handlers = implementation.handlers as Record<string, AnyHandler>;
  return {
    method: (name, { path }) => {
      const handler = handlers[name];
      if (!handler) throw new Error(`no handler for ${path}`);
      return (request, call) => runWithinDeadline(handler, request, call, log, path);
    },
    close: () => {},
  };
}

/** The address in the syntax of grpc-js. */
function channelTarget(address: string): string {
  return /^[\d.:]+,/.test(address) ? `ipv4:${address}` : address;
}

function wire(addresses: string, { multiplexed = [], mux: muxOptions, ...options }: ClientOptions): Transport {
  const callCredentials = options.credentials?.();
  const address = channelTarget(addresses);
  const channelOptions = {
    'grpc.max_receive_message_length': messageBytesMax,
    'grpc.max_send_message_length': messageBytesMax,
    'grpc.initial_reconnect_backoff_ms': 50,
    // This is so short that a copy that has restarted is used again before the next one restarts.
    'grpc.max_reconnect_backoff_ms': 500,
    'grpc.keepalive_time_ms': 30_000,
    'grpc.service_config': JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
    // Names are resolved again when a connection is lost, because the copies may have changed, but no more often than
    // this.
    'grpc.dns_min_time_between_resolutions_ms': 2_000,
  };
  const connection = new GrpcClient(address, callCredentials?.channel ?? credentials.createInsecure(), channelOptions);
  const mux =
    multiplexed.length > 0
      ? new MuxClient(address, channelOptions, messageBytesMax, muxOptions, callCredentials)
      : undefined;
  return {
    method: (name, method) =>
      measuredCalls(
        method.path,
        mux && multiplexed.includes(name)
          ? multiplexedMethod(mux, connection, method, callCredentials)
          : (request: unknown, call: Call) => unary(connection, method, request, appOf(request), call, callCredentials),
      ),
    ...(mux && { muxCounts: () => mux.counts() }),
    close: () => {
      mux?.close();
      connection.close();
    },
  };
}

/** Calls through the multiplexer, or unary ones where the request is too large or the server does not implement it. */
function multiplexedMethod(
  mux: MuxClient,
  connection: GrpcClient,
  method: MethodDefinition<unknown, unknown>,
  callCredentials: CallCredentials | undefined,
): AnyHandler {
  const encoded = { ...method, requestSerialize: (bytes: unknown) => bytes as Buffer };
  return async (request, call) => {
    const bytes = method.requestSerialize(request);
    const app = appOf(request);
    if (bytes.length > maxRequestBytes || mux.isUnsupported())
      return unary(connection, encoded, bytes, app, call, callCredentials);
    const answer = await mux.send(method.path, bytes, app, call);
    return method.responseDeserialize(answer);
  };
}

function unary(
  connection: GrpcClient,
  method: MethodDefinition<unknown, unknown>,
  request: unknown,
  app: string,
  call: Call,
  callCredentials: CallCredentials | undefined,
): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const metadata = new Metadata();
    metadata.set('x-request-id', call.requestId);
    if (call.trace !== undefined) metadata.set('traceparent', call.trace);
    if (callCredentials) metadata.set(tokenHeader, callCredentials.token(method.path, app));
    const sent = connection.makeUnaryRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      request,
      metadata,
      { deadline: call.deadlineMs },
      (error, response) => {
        call.signal.removeEventListener('abort', cancel);
        if (error) reject(asOurFault(isCutOff(error, call) ? unavailable(cutOff, error) : fromStatus(error)));
        else resolve(response);
      },
    );
    const cancel = () => sent.cancel();
    if (call.signal.aborted) cancel();
    else call.signal.addEventListener('abort', cancel, { once: true });
  });
}

const cutOff = 'The connection to the service was closed before it had answered';

/** A server that closes its connections resets their streams with CANCEL, which is not a cancellation by the caller. */
function isCutOff(error: GrpcError, call: Call): boolean {
  return error.code === status.CANCELLED && !call.signal.aborted && error.details === 'Call cancelled';
}

/** The details of a call that grpc-js never sent. */
const notSent = /^(round_robin: )?No connection established|^Name resolution failed/;
/** The details of REFUSED_STREAM: a server that is stopping, or closing an old connection, has not read the call. */
const refused = /^Stream refused by server/;

/** The details that grpc-js gives for an UNAVAILABLE service. */
function detailsOf({ code, cause }: ServiceError): string {
  if (code !== 'UNAVAILABLE' || !(cause instanceof Error)) return '';
  return (cause as Partial<GrpcError>).details ?? '';
}

const isRefused = (error: ServiceError): boolean => refused.test(detailsOf(error));

/** No server can have executed the call. */
const isNotAccepted = (error: ServiceError): boolean => isRefused(error) || notSent.test(detailsOf(error));

/** Several times as long as it takes to notice a copy that has restarted, and as often on however slow a machine. */
const usualRetries: Retries = { forMs: 2_500, attemptsMin: 8 };
const retryDelay = { firstMs: 50, maxMs: 500 };
/** An attempt with less time than this might only replace a definite error by an unknown outcome. */
const attemptMsMin = 100;

/**
 * Retries calls that failed with a retryable error: those that a stopping server refused until their deadline, because
 * the next connection will reach a server that accepts them; all others as `retries` says.
 */
function withRetries(send: AnyHandler, isRetryable: (error: ServiceError) => boolean, retries: Retries): AnyHandler {
  return async (request, call) => {
    let backoff: Backoff | undefined;
    let retryUntilMs: number | undefined;
    let failures = 0;
    for (;;) {
      try {
        return await send(request, call);
      } catch (error) {
        if (!(error instanceof ServiceError) || !isRetryable(error)) throw error;
        backoff ??= new Backoff(retryDelay);
        const nowMs = Date.now();
        const retryAtMs = nowMs + backoff.nextMs();
        let isExhausted = false;
        if (!isRefused(error)) {
          retryUntilMs ??= nowMs + retries.forMs;
          isExhausted = ++failures >= retries.attemptsMin && retryAtMs >= retryUntilMs;
        }
        if (isExhausted || call.signal.aborted || retryAtMs + attemptMsMin > call.deadlineMs) throw error;
        await pause(retryAtMs - nowMs);
      }
    }
  };
}
