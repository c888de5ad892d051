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
import { runHandler, type AnyHandler } from './run';
import { toStatus } from './status';
import { carrierDefinition } from './stream';
import { carrier, type CarriedMethod, type CarrierCounts } from './stream-server';
import type { Call, Handlers } from './types';

/** The largest message either way: a result of 32 MiB and what is around it. */
export const maxMessageBytes = 40 * 1024 * 1024;

/** Time that calls under way have to finish when a server stops. */
const drainTimeoutMs = 5_000;
/** For a caller that sets no deadline. */
const defaultDeadlineMs = 30_000;

/** One service and its handlers, ready for a server or for direct calls. */
export interface Implementation<D extends ServiceDefinition = ServiceDefinition> {
  definition: D;
  handlers: Handlers<D>;
}

export interface GrpcServer {
  /** host:port, with the port that was really taken. */
  address: string;
  /** What is under way on streams, see stream.ts. */
  streamCounts(): CarrierCounts;
  stop(): Promise<void>;
}

/** Serves implementations on `listen` (host:port, 0 for any free port). */
export async function startServer(listen: string, implementations: Implementation[], log: Logger): Promise<GrpcServer> {
  const server = new Server({
    'grpc.max_receive_message_length': maxMessageBytes,
    'grpc.max_send_message_length': maxMessageBytes,
    'grpc.keepalive_time_ms': 30_000,
  });
  for (const { definition, handlers } of implementations)
    server.addService(definition, unary(definition, handlers, log));
  const streams = carrier(carriedMethods(implementations), maxMessageBytes, log);
  server.addService(carrierDefinition, streams.handlers);
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync(listen, ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    );
  });
  return {
    address: `${listen.slice(0, listen.lastIndexOf(':'))}:${port}`,
    streamCounts: () => streams.counts(),
    stop: () => {
      streams.goAway();
      return stop(server);
    },
  };
}

/** Every method can be called through a stream; which ones are, the caller decides. */
function carriedMethods(implementations: readonly Implementation[]): Map<string, CarriedMethod> {
  const methods = new Map<string, CarriedMethod>();
  for (const { definition, handlers } of implementations) {
    for (const [name, method] of Object.entries(definition)) {
      methods.set(method.path, {
        handler: handlerOf(handlers, name, method.path),
        deserialize: method.requestDeserialize,
        serialize: method.responseSerialize,
      });
    }
  }
  return methods;
}

function handlerOf(handlers: object, name: string, path: string): AnyHandler {
  const handler = (handlers as Record<string, AnyHandler>)[name[0]!.toLowerCase() + name.slice(1)];
  if (!handler) throw new Error(`no handler for ${path}`);
  return handler;
}

function unary(definition: ServiceDefinition, handlers: object, log: Logger): UntypedServiceImplementation {
  const implementation: UntypedServiceImplementation = {};
  for (const [name, method] of Object.entries(definition)) {
    const handler = handlerOf(handlers, name, method.path);
    implementation[name] = (call: ServerUnaryCall<unknown, unknown>, answer: sendUnaryData<unknown>) => {
      runHandler(handler, call.request, incomingCall(call), log, method.path).then(
        (response) => answer(null, response),
        (error: ServiceError) => answer(toStatus(error)),
      );
    };
  }
  return implementation;
}

function incomingCall(call: ServerUnaryCall<unknown, unknown>): Call {
  const deadline = Number(call.getDeadline());
  const aborted = new AbortController();
  call.on('cancelled', () => aborted.abort());
  return {
    requestId: call.metadata.get('x-request-id')[0]?.toString() ?? '',
    deadlineMs: Number.isFinite(deadline) ? deadline : Date.now() + defaultDeadlineMs,
    signal: aborted.signal,
  };
}

function stop(server: Server): Promise<void> {
  return new Promise((resolve) => {
    const cutOff = setTimeout(() => server.forceShutdown(), drainTimeoutMs);
    server.tryShutdown(() => {
      clearTimeout(cutOff);
      resolve();
    });
  });
}
