import {
  Server,
  ServerCredentials,
  type sendUnaryData,
  type ServerUnaryCall,
  type UntypedServiceImplementation,
} from '@grpc/grpc-js';
import type { ServiceError } from '../errors';
import type { Logger } from '../logger';
import { formatHostPort, parseHostPort } from '../host-port';
import { StartError } from '../start-error';
import type { Implementation } from '../rpc/implementation';
import type { ServerTrust } from '../trust/trust';
import { createAuthorization, type Authorization } from '../rpc/authorization';
import { Cancellation } from '../concurrency/cancellation';
import { runHandler, type AnyHandler } from '../rpc/call';
import { toStatus } from '../rpc/status';
import { muxDefinition } from '../mux/protocol';
import { MuxServer, type MuxServerCounts } from '../mux/server';
import type { MuxMethod } from '../mux/session';
import type { Call } from '../rpc/types';
import { messageBytesMax } from './message-size';

/**
 * Age at which a connection is closed in favour of a new one: clients then resolve the addresses of the service again,
 * so that a new copy gets its share. Calls under way finish on the old connection.
 */
const connectionAgeMs = 5 * 60_000;
/** Longer than any call, and than the age at which a stream is renewed. */
const connectionAgeGraceMs = 10 * 60_000;
/** The time limit of a call whose client sets no deadline. */
const defaultDeadlineMs = 30_000;

export interface GrpcServer {
  /** host:port, with the actual port. */
  address: string;
  /** Counts of what the multiplexer has under way, see mux/. */
  muxCounts(): MuxServerCounts;
  stop(): Promise<void>;
}

export interface ServerOptions {
  /** How long calls under way may take to finish when the server stops. */
  drainTimeoutMs?: number;
  /** 5 min if it is not given. */
  connectionAgeMs?: number;
}

/**
 * Serves implementations on `listen` (host:port, 0 for any free port), with `trust` only to authorized callers. Without
 * it everybody may call everything, unencrypted: that is for tests of the transport, services always have it.
 */
export async function startServer(
  listen: string,
  implementations: Implementation[],
  log: Logger,
  trust?: ServerTrust,
  options: ServerOptions = {},
): Promise<GrpcServer> {
  const authorization = trust && createAuthorization(trust.guard, implementations, muxDefinition.Stream.path);
  const server = new Server({
    ...(authorization && { interceptors: [authorization.interceptor] }),
    'grpc.max_receive_message_length': messageBytesMax,
    'grpc.max_send_message_length': messageBytesMax,
    'grpc.keepalive_time_ms': 30_000,
    'grpc.max_connection_age_ms': options.connectionAgeMs ?? connectionAgeMs,
    'grpc.max_connection_age_grace_ms': connectionAgeGraceMs,
  });
  for (const implementation of implementations)
    server.addService(implementation.definition, unary(implementation, log, authorization));
  const mux = new MuxServer(muxMethods(implementations, authorization), messageBytesMax, log, authorization);
  server.addService(muxDefinition, mux.handlers);
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync(listen, trust?.credentials ?? ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(new StartError(`Cannot listen on ${listen} (LISTEN): ${error.message}`)) : resolve(bound),
    );
  });
  return {
    address: formatHostPort({ ...parseHostPort(listen), port }),
    muxCounts: () => mux.counts(),
    stop: () => {
      const stopped = stop(server, options.drainTimeoutMs ?? 5_000);
      // The server accepts no more streams by now, so clients open their next one on another connection.
      mux.goAway();
      return stopped;
    },
  };
}

/** Every method can be called through the multiplexer; clients choose which are. */
function muxMethods(
  implementations: readonly Implementation[],
  authorization: Authorization | undefined,
): Map<string, MuxMethod> {
  const methods = new Map<string, MuxMethod>();
  for (const implementation of implementations) {
    for (const [name, method] of Object.entries(implementation.definition)) {
      methods.set(method.path, {
        handler: handlerOf(implementation, name, method.path, authorization),
        deserialize: method.requestDeserialize,
        serialize: method.responseSerialize,
      });
    }
  }
  return methods;
}

function handlerOf(
  { handlers, limits = {} }: Implementation,
  name: string,
  path: string,
  authorization: Authorization | undefined,
): AnyHandler {
  const functionName = name[0]!.toLowerCase() + name.slice(1);
  const handler = (handlers as Record<string, AnyHandler>)[functionName];
  if (!handler) throw new Error(`no handler for ${path}`);
  const limit = limits[functionName];
  if (!authorization || !limit) return handler;
  return async (request, call) => {
    if (!call.caller || !limit(request, call.caller)) throw authorization.deny(call.caller, path);
    return handler(request, call);
  };
}

function unary(
  implementation: Implementation,
  log: Logger,
  authorization: Authorization | undefined,
): UntypedServiceImplementation {
  const served: UntypedServiceImplementation = {};
  for (const [name, method] of Object.entries(implementation.definition)) {
    const handler = handlerOf(implementation, name, method.path, authorization);
    served[name] = (call: ServerUnaryCall<unknown, unknown>, answer: sendUnaryData<unknown>) => {
      const authorized: AnyHandler = (request, within) => {
        if (authorization) within.caller = authorization.callerOf(call.metadata, request, method.path);
        return handler(request, within);
      };
      runHandler(authorized, call.request, incomingCall(call), log, method.path).then(
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

/** Refuses new connections and calls, and waits for calls under way. */
function stop(server: Server, drainTimeoutMs: number): Promise<void> {
  return new Promise((resolve) => {
    const cutOff = setTimeout(() => {
      server.forceShutdown();
      // This does not wait for the callback of tryShutdown: a peer may never close its end of a connection.
      resolve();
    }, drainTimeoutMs);
    server.tryShutdown(() => {
      clearTimeout(cutOff);
      resolve();
    });
  });
}
