import {
  Client as GrpcClient,
  credentials,
  Metadata,
  type MethodDefinition,
  type ServiceDefinition,
} from '@grpc/grpc-js';
import { ServiceError } from '../errors';
import type { Logger } from '../logger';
import { asOurFault } from '../trust/guard';
import { measuredCalls } from '../telemetry/rpc';
import { appOf, tokenHeader } from '../trust/token';
import type { CallCredentials } from '../trust/trust';
import { runHandler, withinDeadline, type AnyHandler } from './run';
import { maxMessageBytes, type Implementation } from './server';
import { fromStatus } from './status';
import { maxRequestBytes } from './stream';
import { openStreams, type StreamClient, type StreamCounts, type StreamOptions } from './stream-client';
import type { Call, Client } from './types';

/** How a caller reaches a service: in the same process, or at a gRPC address (`dns:///name:port`, `host:port`). */
export type Target<D extends ServiceDefinition> = { implementation: Implementation<D> } | { address: string };

/** Where a whole service is: at an address, or in this process (what its start gave as `implementations`). */
export type ServiceTarget = { address: string } | { implementations: Implementation[] };

/** How a caller reaches one gRPC service of a target. */
export function targetOf<D extends ServiceDefinition>(target: ServiceTarget, definition: D): Target<D> {
  if ('address' in target) return target;
  const firstPath = (service: ServiceDefinition) => Object.values(service)[0]?.path;
  const implementation = target.implementations.find((one) => firstPath(one.definition) === firstPath(definition));
  if (!implementation) throw new Error(`no implementation of ${firstPath(definition)}`);
  return { implementation: implementation as unknown as Implementation<D> };
}

export interface ClientOptions {
  log: Logger;
  /** `() => trust.towards(…)`, asked only for calls over the wire. Without it they are neither signed nor encrypted. */
  credentials?: () => CallCredentials;
  /**
   * Methods that may be sent again when the service was UNAVAILABLE: reads, and calls that carry a ticket or an id
   * of their own. Everything else fails at once.
   */
  repeatable?: readonly string[];
  /** Methods whose calls are small and many: over the wire they travel together on one stream, see stream.ts. */
  streamed?: readonly string[];
  stream?: StreamOptions;
}

export interface OpenClient<D extends ServiceDefinition> {
  client: Client<D>;
  /** What is under way on the streams; undefined without any. */
  streamCounts(): StreamCounts | undefined;
  close(): void;
}

/** The typed client of a service. Errors are ServiceErrors, deadlines hold, whichever way the service is reached. */
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
    client[functionName] = options.repeatable?.includes(functionName) ? repeated(send) : send;
  }
  return {
    client: client as Client<D>,
    streamCounts: () => transport.streamCounts?.(),
    close: () => transport.close(),
  };
}

interface Transport {
  method(name: string, method: MethodDefinition<unknown, unknown>): AnyHandler;
  streamCounts?(): StreamCounts;
  close(): void;
}

function direct(implementation: Implementation, log: Logger): Transport {
  const handlers = implementation.handlers as Record<string, AnyHandler>;
  return {
    method: (name, { path }) => {
      const handler = handlers[name];
      if (!handler) throw new Error(`no handler for ${path}`);
      return (request, call) => withinDeadline(call, runHandler(handler, request, call, log, path));
    },
    close: () => {},
  };
}

function wire(address: string, { streamed = [], stream, ...options }: ClientOptions): Transport {
  const own = options.credentials?.();
  const channelOptions = {
    'grpc.max_receive_message_length': maxMessageBytes,
    'grpc.max_send_message_length': maxMessageBytes,
    'grpc.initial_reconnect_backoff_ms': 50,
    'grpc.max_reconnect_backoff_ms': 1_000,
    'grpc.keepalive_time_ms': 30_000,
  };
  const connection = new GrpcClient(address, own?.channel ?? credentials.createInsecure(), channelOptions);
  const streams = streamed.length > 0 ? openStreams(address, channelOptions, maxMessageBytes, stream, own) : undefined;
  return {
    method: (name, method) =>
      measuredCalls(
        method.path,
        streams && streamed.includes(name)
          ? carried(streams, connection, method, own)
          : (request: unknown, call: Call) => unary(connection, method, request, appOf(request), call, own),
      ),
    ...(streams && { streamCounts: () => streams.counts() }),
    close: () => {
      streams?.close();
      connection.close();
    },
  };
}

/** A call on a stream, unless its request is too large for that or the service knows no streams. */
function carried(
  streams: StreamClient,
  connection: GrpcClient,
  method: MethodDefinition<unknown, unknown>,
  own: CallCredentials | undefined,
): AnyHandler {
  const encoded = { ...method, requestSerialize: (bytes: unknown) => bytes as Buffer };
  return async (request, call) => {
    const bytes = method.requestSerialize(request);
    const app = appOf(request);
    if (bytes.length > maxRequestBytes || streams.unsupported())
      return unary(connection, encoded, bytes, app, call, own);
    const answer = await streams.send(method.path, bytes, app, call);
    return method.responseDeserialize(answer);
  };
}

function unary(
  connection: GrpcClient,
  method: MethodDefinition<unknown, unknown>,
  request: unknown,
  app: string,
  call: Call,
  own: CallCredentials | undefined,
): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const metadata = new Metadata();
    metadata.set('x-request-id', call.requestId);
    if (call.trace !== undefined) metadata.set('traceparent', call.trace);
    if (own) metadata.set(tokenHeader, own.token(method.path, app));
    const sent = connection.makeUnaryRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      request,
      metadata,
      { deadline: call.deadlineMs },
      (error, response) => {
        call.signal.removeEventListener('abort', cancel);
        if (error) reject(asOurFault(fromStatus(error)));
        else resolve(response);
      },
    );
    const cancel = () => sent.cancel();
    if (call.signal.aborted) cancel();
    else call.signal.addEventListener('abort', cancel, { once: true });
  });
}

/** Sends again while the service is UNAVAILABLE and there is time, with growing, jittered pauses. */
function repeated(send: AnyHandler): AnyHandler {
  return async (request, call) => {
    for (let attempt = 1; ; attempt++) {
      try {
        return await send(request, call);
      } catch (error) {
        const pauseMs = Math.random() * Math.min(1_000, 25 * 2 ** attempt);
        const hopeless = attempt >= 8 || call.signal.aborted || Date.now() + pauseMs >= call.deadlineMs;
        if (!(error instanceof ServiceError) || error.code !== 'UNAVAILABLE' || hopeless) throw error;
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
      }
    }
  };
}
