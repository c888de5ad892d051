import {
  Client as GrpcClient,
  credentials,
  Metadata,
  status,
  type MethodDefinition,
  type ServiceDefinition,
  type ServiceError as GrpcError,
} from '@grpc/grpc-js';
import { ServiceError, unavailable } from '../errors';
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
import { answerDeserializer } from '../mux/answer';
import { openMuxClient, type MuxClient, type MuxClientCounts, type MuxClientOptions } from '../mux/client';
import type { Call, Client } from '../rpc/types';

/**
 * How a caller reaches a service: in the same process, or at a gRPC address: `host:port`, `dns:///name:port`, or several
 * addresses with commas between, see `grpcAddress`. Calls go to all copies in turn.
 */
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
   * of their own. Everything else is sent again only as long as no copy has taken it.
   */
  repeatable?: readonly string[];
  /** Methods whose calls are small and many: over the wire they travel together on one stream, see stream.ts. */
  streamed?: readonly string[];
  stream?: MuxClientOptions;
}

export interface OpenClient<D extends ServiceDefinition> {
  client: Client<D>;
  /** What is under way on the streams; undefined without any. */
  streamCounts(): MuxClientCounts | undefined;
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
    const maySendAgain = options.repeatable?.includes(functionName) ? isUnavailable : isNotTaken;
    client[functionName] = repeated(send, maySendAgain);
  }
  return {
    client: client as Client<D>,
    streamCounts: () => transport.streamCounts?.(),
    close: () => transport.close(),
  };
}

interface Transport {
  method(name: string, method: MethodDefinition<unknown, unknown>): AnyHandler;
  streamCounts?(): MuxClientCounts;
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

/** The same as grpc-js writes it. */
function channelTarget(address: string): string {
  return /^[\d.:]+,/.test(address) ? `ipv4:${address}` : address;
}

function wire(addresses: string, { streamed = [], stream, ...options }: ClientOptions): Transport {
  const own = options.credentials?.();
  const address = channelTarget(addresses);
  const channelOptions = {
    'grpc.max_receive_message_length': messageBytesMax,
    'grpc.max_send_message_length': messageBytesMax,
    'grpc.initial_reconnect_backoff_ms': 50,
    // A copy that comes back is soon used, also before the next one goes.
    'grpc.max_reconnect_backoff_ms': 500,
    'grpc.keepalive_time_ms': 30_000,
    'grpc.service_config': JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
    // Names are looked up when a connection is lost, at most as often as this: the copies may be others by then.
    'grpc.dns_min_time_between_resolutions_ms': 2_000,
  };
  const connection = new GrpcClient(address, own?.channel ?? credentials.createInsecure(), channelOptions);
  const streams =
    streamed.length > 0 ? openMuxClient(address, channelOptions, messageBytesMax, stream, own) : undefined;
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
  streams: MuxClient,
  connection: GrpcClient,
  method: MethodDefinition<unknown, unknown>,
  own: CallCredentials | undefined,
): AnyHandler {
  const deserialize = answerDeserializer(method);
  const encoded = { ...method, requestSerialize: (bytes: unknown) => bytes as Buffer };
  return async (request, call) => {
    const bytes = method.requestSerialize(request);
    const app = appOf(request);
    if (bytes.length > maxRequestBytes || streams.unsupported())
      return unary(connection, encoded, bytes, app, call, own);
    const answer = await streams.send(method.path, bytes, app, call);
    return deserialize(answer);
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
        if (error) reject(asOurFault(isCutOff(error, call) ? unavailable(cutOff, error) : fromStatus(error)));
        else resolve(response);
      },
    );
    const cancel = () => sent.cancel();
    if (call.signal.aborted) cancel();
    else call.signal.addEventListener('abort', cancel, { once: true });
  });
}

const cutOff = 'The service was cut off before it had answered';

/** A server that ends its connections resets their streams with CANCEL, which is not the caller's own cancellation. */
function isCutOff(error: GrpcError, call: Call): boolean {
  return error.code === status.CANCELLED && !call.signal.aborted && error.details === 'Call cancelled';
}

const isUnavailable = (error: ServiceError): boolean => error.code === 'UNAVAILABLE';

/** How grpc-js reports that a call was never sent … */
const notSent = /^(round_robin: )?No connection established|^Name resolution failed/;
/** … and REFUSED_STREAM: a server that is stopping, or closing the connection for its age, did not look at it. */
const refused = /^Stream refused by server/;

/** What grpc-js reports of a call for which there was no service. */
function detailsOf({ code, cause }: ServiceError): string {
  if (code !== 'UNAVAILABLE' || !(cause instanceof Error)) return '';
  return (cause as Partial<GrpcError>).details ?? '';
}

const isRefused = (error: ServiceError): boolean => refused.test(detailsOf(error));

/** Nobody can have done anything about the call. */
const isNotTaken = (error: ServiceError): boolean => isRefused(error) || notSent.test(detailsOf(error));

/** A call is sent again for so long, several times as long as a copy that has come back may go unnoticed, … */
const patienceMs = 2_500;
/** … and at least so often, however slow everything is. */
const attemptsMin = 8;

/**
 * Sends again what failed so that it may be, with growing, jittered pauses: a refused call until its deadline, because
 * a server is there and takes it on its next connection, any other only as long as `patienceMs`.
 */
function repeated(send: AnyHandler, maySendAgain: (error: ServiceError) => boolean): AnyHandler {
  return async (request, call) => {
    let patientUntilMs: number | undefined;
    let failures = 0;
    for (let attempt = 1; ; attempt++) {
      try {
        return await send(request, call);
      } catch (error) {
        if (!(error instanceof ServiceError) || !maySendAgain(error)) throw error;
        const nowMs = Date.now();
        const pauseMs = Math.random() * Math.min(500, 25 * 2 ** attempt);
        let isEnough = false;
        if (!isRefused(error)) {
          patientUntilMs ??= nowMs + patienceMs;
          isEnough = ++failures >= attemptsMin && nowMs + pauseMs >= patientUntilMs;
        }
        if (isEnough || call.signal.aborted || nowMs + pauseMs >= call.deadlineMs) throw error;
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
      }
    }
  };
}
