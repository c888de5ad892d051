import {
  Server,
  ServerCredentials,
  type sendUnaryData,
  type ServerUnaryCall,
  type ServiceDefinition,
  type UntypedServiceImplementation,
} from '@grpc/grpc-js';
import type { ServiceError } from '../errors';
import type { Logger } from '../logger';
import { StartError } from '../start-error';
import type { Access, Limits } from '../rpc/access';
import type { ServerTrust } from '../trust/trust';
import { admission, type Admission } from '../rpc/authorization';
import { Cancellation } from '../concurrency/cancellation';
import { runHandler, type AnyHandler } from '../rpc/call';
import { toStatus } from '../rpc/status';
import { carrierDefinition } from '../mux/protocol';
import { partsSerializer } from '../mux/answer';
import { carrier, type CarriedMethod, type CarrierCounts } from '../mux/server';
import type { Call, Handlers } from '../rpc/types';

/** The largest message either way: a result of 32 MiB and what is around it. */
export const maxMessageBytes = 40 * 1024 * 1024;

/**
 * Age at which a connection is given up in favour of a new one: when it goes, callers look again where the copies of
 * the service are, so that a copy that has come gets its share. What is under way goes on over the old one.
 */
const connectionAgeMs = 5 * 60_000;
/** Longer than any call, and than a stream goes on before it is renewed. */
const connectionAgeGraceMs = 10 * 60_000;
/** For a caller that sets no deadline. */
const defaultDeadlineMs = 30_000;

/** One service and its handlers, ready for a server or for direct calls. */
export interface Implementation<D extends ServiceDefinition = ServiceDefinition> {
  definition: D;
  handlers: Handlers<D>;
  /** Who may call it from another process. */
  access?: Access;
  limits?: Limits;
}

export interface GrpcServer {
  /** host:port, with the port that was really taken. */
  address: string;
  /** What is under way on streams, see stream.ts. */
  streamCounts(): CarrierCounts;
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
  const admitted = trust && admission(trust.guard, implementations);
  const server = new Server({
    ...(admitted && { interceptors: [admitted.interceptor] }),
    'grpc.max_receive_message_length': maxMessageBytes,
    'grpc.max_send_message_length': maxMessageBytes,
    'grpc.keepalive_time_ms': 30_000,
    'grpc.max_connection_age_ms': options.connectionAgeMs ?? connectionAgeMs,
    'grpc.max_connection_age_grace_ms': connectionAgeGraceMs,
  });
  for (const implementation of implementations)
    server.addService(implementation.definition, unary(implementation, log, admitted));
  const streams = carrier(carriedMethods(implementations, admitted), maxMessageBytes, log, admitted);
  server.addService(carrierDefinition, streams.handlers);
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
  admitted: Admission | undefined,
): Map<string, CarriedMethod> {
  const methods = new Map<string, CarriedMethod>();
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
  admitted: Admission | undefined,
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
  admitted: Admission | undefined,
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
