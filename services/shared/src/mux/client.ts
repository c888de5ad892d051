import { status, type ServiceError as GrpcError } from '@grpc/grpc-js';
import { startDeadline, cancelDeadline, type Deadline } from '../concurrency/deadlines';
import { fairQueue } from '../concurrency/fair-queue';
import { ServiceError, unavailable } from '../errors';
import type { Batch } from '../gen/granary/mux/v1/Batch';
import type { Call as OutgoingCall } from '../gen/granary/mux/v1/Call';
import type { Frame } from '../gen/granary/mux/v1/Frame';
import { deadlinePassed } from '../rpc/call';
import { fromFailure, fromStatus } from '../rpc/status';
import type { Call } from '../rpc/types';
import { asOurFault, callRefused } from '../trust/guard';
import type { CallCredentials } from '../trust/trust';
import { Channels } from './channels';
import { itemOverheadBytes, messageBytes, windowItems } from './protocol';
import type { Stream } from './stream';
import { InFlightWindow, shareOfOneApp } from './window';

/** Counts of what a client has under way; when nothing is, only streams are left, which stay open. */
export interface MuxClientCounts {
  /** Calls that have not been sent: the window is full. */
  waiting: number;
  inFlight: number;
  /** Open ones, those that are draining among them. */
  streams: number;
  /** How often one stream was replaced by another. */
  renewals: number;
}

export interface MuxClientOptions {
  /**
   * Streams to a service with one address, each on a connection of its own; with several addresses there is one to
   * each.
   */
  streams?: number;
  /** A stream is renewed after this time, a fifth more or less, so that copies of a service share the load. */
  renewAfterMs?: number;
  /** How many calls may wait; further ones are refused at once. */
  waitingMax?: number;
  /** How many bytes of their requests. */
  waitingBytesMax?: number;
}

const defaults: Required<MuxClientOptions> = {
  streams: 2,
  renewAfterMs: 60_000,
  waitingMax: 8_192,
  waitingBytesMax: 64 * 1024 * 1024,
};

const unsupportedForMs = 60_000;
const longestTimeoutMs = 2 ** 31 - 1;

/** A call from `send` until its promise settles: first in the queue, then on a stream. */
class PendingCall {
  readonly deadline: Deadline;
  readonly cancel: () => void;
  stream: Stream<PendingCall> | undefined = undefined;
  id = 0;
  sentAtMs = 0;
  /** The frames of an answer in several frames, except the last. */
  received: Buffer[] | undefined = undefined;
  answerBytes = 0;

  constructor(
    client: MuxClient,
    readonly path: string,
    readonly request: Buffer,
    readonly key: string,
    readonly call: Call,
    timeoutMs: number,
    readonly resolve: (answer: Buffer) => void,
    readonly reject: (error: Error) => void,
  ) {
    this.deadline = startDeadline(timeoutMs, () => client.expire(this));
    this.cancel = () => client.abandon(this, cancelled());
    call.signal.addEventListener('abort', this.cancel, { once: true });
  }
}

/**
 * The client's end of the multiplexer to one address: queues calls by app, sends what comes up in one turn of the event
 * loop in one message, and matches answers to calls. `maxAnswerBytes` bounds what a server can make it hold.
 */
export class MuxClient {
  private readonly queue = fairQueue<PendingCall>();
  private readonly window: InFlightWindow;
  private readonly channels: Channels<PendingCall>;
  private readonly waitingMax: number;
  private readonly waitingBytesMax: number;
  private waitingBytes = 0;
  private unsupportedUntilMs = 0;
  private flushing: NodeJS.Immediate | undefined;
  private isClosing = false;

  constructor(
    address: string,
    channelOptions: Record<string, string | number>,
    private readonly maxAnswerBytes: number,
    options: MuxClientOptions = {},
    callCredentials?: CallCredentials,
  ) {
    const { streams: count, renewAfterMs, waitingMax, waitingBytesMax } = { ...defaults, ...options };
    this.waitingMax = waitingMax;
    this.waitingBytesMax = waitingBytesMax;
    this.window = new InFlightWindow(() => this.channels.width);
    this.channels = new Channels<PendingCall>(
      { address, channelOptions, count, renewAfterMs, own: callCredentials },
      {
        received: (stream, batch) => this.receive(stream, batch),
        broken: (stream, error) => this.failAll(stream, error),
        changed: () => this.schedule(),
      },
    );
  }

  /** `request` and the answer are encoded messages; `key` is the app: calls of different keys take turns. */
  send(path: string, request: Buffer, key: string, call: Call): Promise<Buffer> {
    const timeoutMs = call.deadlineMs - Date.now();
    const refusal = this.refusal(key, call, timeoutMs);
    if (refusal) return Promise.reject(refusal);
    return new Promise((resolve, reject) => {
      this.queue.add(key, new PendingCall(this, path, request, key, call, timeoutMs, resolve, reject));
      this.waitingBytes += request.length;
      this.schedule();
    });
  }

  /** Whether the server does not implement the multiplexer (an older release): calls must then be unary ones. */
  isUnsupported(): boolean {
    return Date.now() < this.unsupportedUntilMs;
  }

  counts(): MuxClientCounts {
    return { waiting: this.queue.size, inFlight: this.window.size, ...this.channels.counts() };
  }

  /** Calls under way are finished, further ones refused. */
  close(): void {
    this.isClosing = true;
    this.schedule();
  }

  /** Gives up a call whose deadline has passed; called by PendingCall. */
  expire(pending: PendingCall): void {
    if (pending.stream) this.channels.timedOut(pending.stream, pending.sentAtMs);
    this.abandon(pending, deadlinePassed());
  }

  /** Gives up a call with this error; called by PendingCall when nobody waits for it any more. */
  abandon(pending: PendingCall, error: ServiceError): void {
    pending.stream?.cancel(pending.id);
    this.release(pending);
    pending.reject(error);
    this.schedule();
  }

  private refusal(key: string, call: Call, timeoutMs: number): ServiceError | undefined {
    if (this.isClosing) return unavailable('The client is closed');
    if (call.signal.aborted) return cancelled();
    if (timeoutMs <= 0) return deadlinePassed();
    const { queue, waitingMax, waitingBytes, waitingBytesMax } = this;
    const max = key === '' ? waitingMax : waitingMax * shareOfOneApp;
    if (queue.size < waitingMax && queue.sizeOf(key) < max && waitingBytes < waitingBytesMax) return undefined;
    return new ServiceError('RESOURCE_EXHAUSTED', 'TOO_MANY_REQUESTS', 'Too many requests wait');
  }

  /** Removes a call from wherever it is, and stops its timer and listener. */
  private release(pending: PendingCall): void {
    cancelDeadline(pending.deadline);
    pending.call.signal.removeEventListener('abort', pending.cancel);
    const { stream, key, request } = pending;
    if (!stream) {
      if (this.queue.remove(key, pending)) this.waitingBytes -= request.length;
      return;
    }
    stream.inFlight.delete(pending.id);
    stream.requestBytes -= request.length;
    this.window.remove(key);
    if (this.queue.size > 0 || stream.isDraining || this.isClosing) this.schedule();
  }

  private schedule(): void {
    this.flushing ??= setImmediate(() => this.flush());
  }

  /** Sends what was queued in a turn of the event loop, at most once per turn. */
  private flush(): void {
    this.flushing = undefined;
    const nowMs = Date.now();
    while (this.queue.size > 0 && !this.window.isFull) {
      const stream = this.channels.leastLoaded(nowMs);
      if (!stream || !this.sendMessage(stream, nowMs)) break;
    }
    this.channels.maintain();
    if (this.isClosing && this.queue.size === 0) this.channels.close();
  }

  /** Sends one message of queued calls; false if none may be sent now. */
  private sendMessage(stream: Stream<PendingCall>, nowMs: number): boolean {
    const calls: OutgoingCall[] = [];
    let bytes = 0;
    while (bytes < messageBytes && stream.inFlight.size < windowItems && !this.window.isFull) {
      const pending = this.queue.take(this.window.isHeld);
      if (!pending) break;
      calls.push(this.assign(pending, stream, nowMs));
      bytes += pending.request.length + itemOverheadBytes;
    }
    if (calls.length > 0) stream.write(calls, bytes);
    return calls.length > 0;
  }

  /** Moves a call from the queue to a stream. */
  private assign(pending: PendingCall, stream: Stream<PendingCall>, nowMs: number): OutgoingCall {
    const { path: method, request, key, call } = pending;
    this.waitingBytes -= request.length;
    pending.stream = stream;
    pending.id = stream.nextId();
    pending.sentAtMs = nowMs;
    stream.inFlight.set(pending.id, pending);
    stream.requestBytes += request.length;
    this.window.add(key);
    const timeoutMs = Math.min(Math.max(0, call.deadlineMs - nowMs), longestTimeoutMs);
    const outgoing: OutgoingCall = { id: pending.id, method, timeoutMs, requestId: call.requestId, request };
    if (call.trace !== undefined) outgoing.trace = call.trace;
    return outgoing;
  }

  private receive(stream: Stream<PendingCall>, { frames }: Batch): void {
    for (const frame of frames) {
      const pending = stream.inFlight.get(frame.id);
      if (pending) this.receiveFrame(pending, frame);
    }
  }

  private receiveFrame(pending: PendingCall, { payload, more, failure }: Frame): void {
    pending.answerBytes += payload.length;
    if (failure) {
      this.release(pending);
      pending.reject(asOurFault(fromFailure(failure)));
    } else if (pending.answerBytes > this.maxAnswerBytes) {
      this.abandon(pending, new ServiceError('RESOURCE_EXHAUSTED', 'RESULT_TOO_LARGE', 'The result is too large'));
    } else if (more) {
      (pending.received ??= []).push(payload);
    } else {
      this.release(pending);
      pending.resolve(pending.received ? Buffer.concat([...pending.received, payload]) : payload);
    }
  }

  /** Rejects the calls of a stream that broke. Unless the server had refused the stream, their outcome is unknown. */
  private failAll(stream: Stream<PendingCall>, error: GrpcError | undefined): void {
    if (error?.code === status.UNIMPLEMENTED) this.unsupportedUntilMs = Date.now() + unsupportedForMs;
    const serviceError = error && fromStatus(error);
    // A server that has accepted the stream may have begun with its calls, whatever it ends the stream with.
    const cause = stream.peer === undefined ? error : new Error('the stream broke', { cause: error });
    const reason =
      serviceError?.reason === callRefused
        ? asOurFault(serviceError)
        : unavailable('A service cannot be reached', cause);
    for (const pending of [...stream.inFlight.values()]) {
      this.release(pending);
      pending.reject(reason);
    }
  }
}

function cancelled(): ServiceError {
  return new ServiceError('CANCELLED', 'CANCELLED', 'The request was cancelled');
}
