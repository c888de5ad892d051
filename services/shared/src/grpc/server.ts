import {
  Server,
  ServerCredentials,
  type sendUnaryData,
  type ServerUnaryCall,
  type UntypedServiceImplementation,
} from '@grpc/grpc-js';
import type { ServiceError } from '../errors';
import type { Logger } from '../logger';
import { StartError } from '../start-error';
import type { Implementation } from '../rpc/implementation';
import type { ServerTrust } from '../trust/trust';
import { createAuthorization, type Authorization } from '../rpc/authorization';
import { Cancellation } from '../concurrency/cancellation';
import { runHandler, type AnyHandler } from '../rpc/call';
import { toStatus } from '../rpc/status';
import { muxDefinition } from '../mux/protocol';
import { partsSerializer } from '../mux/answer';
import { createMuxServer, type MuxMethod, type MuxServerCounts } from '../mux/server';
import type { Call } from '../rpc/types';
import { messageBytesMax } from './message-size';

/**
 * Age at which a connection is given up in favour of a new one: when it goes, callers look again where the copies of
 * the service are, so that a copy that has come gets its share. What is under way goes on over the old one.
 */
const connectionAgeMs = 5 * 60_000;
/** Longer than any call, and than a stream goes on before it is renewed. */
const connectionAgeGraceMs = 10 * 60_000;
/** For a caller that sets no deadline. */
const defaultDeadlineMs = 30_000;

export interface GrpcServer {
  /** host:port, with the port that was really taken. */
  address: string;
  /** What is under way on streams, see stream.ts. */
  streamCounts(): MuxServerCounts;
  stop(): Promise<void>;
}

export interface ServerOptions {
  /** Time that calls under way have to finish when the server stops. */
  drainTimeoutMs?: number;
  /** What tests shorten. */
  connectionAgeMs?: number;
}

/**
 * Serves implementations on `listen` (host:port, 0 for any free port), with `trust` only to those who may call them.
 * Without it everybody may, unencrypted: that is for tests of what goes over the wire, services always have it.
 */
export async function startServer(
  listen: string,
  implementations: Implementation[],
  log: Logger,
  trust?: ServerTrust,
  options: ServerOptions = {},
): Promise<GrpcServer> {
  const admitted = trust && createAuthorization(trust.guard, implementations, muxDefinition.Stream.path);
  const server = new Server({
    ...(admitted && { interceptors: [admitted.interceptor] }),
    'grpc.max_receive_message_length': messageBytesMax,
    'grpc.max_send_message_length': messageBytesMax,
    'grpc.keepalive_time_ms': 30_000,
    'grpc.max_connection_age_ms': options.connectionAgeMs ?? connectionAgeMs,
    'grpc.max_connection_age_grace_ms': connectionAgeGraceMs,
  });
  for (const implementation of implementations)
    server.addService(implementation.definition, unary(implementation, log, admitted));
  const streams = createMuxServer(carriedMethods(implementations, admitted), messageBytesMax, log, admitted);
  server.addService(muxDefinition, streams.handlers);
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync(listen, trust?.credentials ?? ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(new StartError(`Cannot listen on ${listen} (LISTEN): ${error.message}`)) : resolve(bound),
    );
  });
  return {
    address: `${listen.slice(0, listen.lastIndexOf(':'))}:${port}`,
    streamCounts: () => streams.counts(),
    stop: () => {
      const stopped = stop(server, options.drainTimeoutMs ?? 5_000);
      // In this order, so that callers open their next stream on a connection that is not about to go.
      streams.goAway();
      return stopped;
    },
  };
}

/** Every method can be called through a stream; which ones are, the caller decides. */
function carriedMethods(
  implementations: readonly Implementation[],
  admitted: Authorization | undefined,
): Map<string, MuxMethod> {
  const methods = new Map<string, MuxMethod>();
  for (const implementation of implementations) {
    for (const [name, method] of Object.entries(implementation.definition)) {
      methods.set(method.path, {
        handler: handlerOf(implementation, name, method.path, admitted),
        deserialize: method.requestDeserialize,
        serialize: partsSerializer(method),
      });
    }
  }
  return methods;
}

function handlerOf(
  { handlers, limits = {} }: Implementation,
  name: string,
  path: string,
  admitted: Authorization | undefined,
): AnyHandler {
  const functionName = name[0]!.toLowerCase() + name.slice(1);
  const handler = (handlers as Record<string, AnyHandler>)[functionName];
  if (!handler) throw new Error(`no handler for ${path}`);
  const limit = limits[functionName];
  if (!admitted || !limit) return handler;
  return async (request, call) => {
    if (!call.caller || !limit(request, call.caller)) throw admitted.deny(call.caller, path);
    return handler(request, call);
  };
}

function unary(
  implementation: Implementation,
  log: Logger,
  admitted: Authorization | undefined,
): UntypedServiceImplementation {
  const served: UntypedServiceImplementation = {};
  for (const [name, method] of Object.entries(implementation.definition)) {
    const handler = handlerOf(implementation, name, method.path, admitted);
    served[name] = (call: ServerUnaryCall<unknown, unknown>, answer: sendUnaryData<unknown>) => {
      const admittedHandler: AnyHandler = (request, within) => {
        if (admitted) within.caller = admitted.callerOf(call.metadata, request, method.path);
        return handler(request, within);
      };
      runHandler(admittedHandler, call.request, incomingCall(call), log, method.path).then(
        (response) => answer(null, response),
        (error: ServiceError) => answer(toStatus(error)),
      );
    };
  }
  return served;
}

function incomingCall(call: ServerUnaryCall<unknown, unknown>): Call {
  const deadline = Number(call.getDeadline());
  const signal = new Cancellation();
  call.on('cancelled', () => signal.abort());
  return {
    requestId: call.metadata.get('x-request-id')[0]?.toString() ?? '',
    trace: call.metadata.get('traceparent')[0]?.toString(),
    deadlineMs: Number.isFinite(deadline) ? deadline : Date.now() + defaultDeadlineMs,
    signal,
  };
}

/** Takes no new connections and calls, sends callers elsewhere, and waits for what is under way. */
function stop(server: Server, drainTimeoutMs: number): Promise<void> {
  return new Promise((resolve) => {
    const cutOff = setTimeout(() => {
      server.forceShutdown();
      // Its callback would wait for a peer that never closes its end of a connection.
      resolve();
    }, drainTimeoutMs);
    server.tryShutdown(() => {
      clearTimeout(cutOff);
      resolve();
    });
  });
}
