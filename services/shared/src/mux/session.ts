import { Metadata, type ServerDuplexStream } from '@grpc/grpc-js';
import { Cancellation } from '../concurrency/cancellation';
import { startDeadline, cancelDeadline, type Deadline } from '../concurrency/deadlines';
import { ServiceError } from '../errors';
import type { Batch, BatchInput } from '../gen/granary/mux/v1/Batch';
import type { Call as IncomingCall } from '../gen/granary/mux/v1/Call';
import type { Logger } from '../logger';
import { runHandler, type AnyHandler } from '../rpc/call';
import { toFailure, toServiceError, type Failure } from '../rpc/status';
import type { Call } from '../rpc/types';
import { ResponseQueue, type PendingResponse } from './response-queue';
import type { SessionCredentials } from './credentials';
import { itemOverheadBytes, renewMethod, windowItems } from './protocol';

/** A method that can be called through the multiplexer. */
export interface MuxMethod {
  handler: AnyHandler;
  deserialize: (bytes: Buffer) => unknown;
  serialize: (response: unknown) => Buffer;
}

export interface SessionOptions {
  methods: ReadonlyMap<string, MuxMethod>;
  /** A larger response becomes RESULT_TOO_LARGE, as in gRPC. */
  maxAnswerBytes: number;
  log: Logger;
  /** Absent: everybody may call everything. */
  credentials: SessionCredentials<MuxMethod> | undefined;
  onClosed: () => void;
}

export type MuxDuplex = ServerDuplexStream<Batch, BatchInput>;

/**
 * Above this many bytes of queued responses no call is read until half of them are sent: the caller does not read its
 * responses.
 */
const queuedBytesMax = 8 * 1024 * 1024;

/** A call from its arrival until its response has been sent. */
class SessionCall implements PendingResponse {
  readonly signal = new Cancellation();
  deadline: Deadline | undefined = undefined;
  response: Buffer | undefined = undefined;
  sentBytes = 0;
  failure: Failure | undefined = undefined;

  constructor(readonly id: number) {}
}

/** The server's end of one stream: runs the calls that arrive on it and sends their responses. */
export class MuxSession {
  private readonly running = new Map<number, SessionCall>();
  private readonly responses: ResponseQueue<SessionCall>;
  private readonly allowedMethods: ReadonlyMap<string, MuxMethod>;
  private isCallerDone = false;
  private isClosed = false;

  constructor(
    private readonly duplex: MuxDuplex,
    private readonly options: SessionOptions,
  ) {
    this.allowedMethods = options.credentials?.methods ?? options.methods;
    this.responses = new ResponseQueue({
      write: (batch, sent) => duplex.write(batch, sent),
      sent: (call) => this.release(call),
      flushed: () => {
        this.resumeWhenRoom();
        this.endWhenDone();
      },
    });
    // Sent at once, so that the client knows which address the stream has reached.
    duplex.sendMetadata(new Metadata());
    duplex.on('data', (batch: Batch) => this.receive(batch));
    duplex.on('end', () => {
      this.isCallerDone = true;
      this.endWhenDone();
    });
    const close = () => this.close();
    duplex.on('cancelled', close).on('close', close).on('error', close);
  }

  counts(): { calls: number; answerBytes: number } {
    return { calls: this.running.size, answerBytes: this.responses.bytes };
  }

  /** Asks the client to send its next calls on another stream; those that it has sent are answered. */
  goAway(): void {
    if (!this.isClosed && !this.duplex.writableEnded) this.responses.send({ goingAway: true }, itemOverheadBytes);
  }

  private receive({ calls, cancelled }: Batch): void {
    for (const id of cancelled) this.abandon(this.running.get(id));
    for (const call of calls) this.start(call);
  }

  private start({ id, method: path, timeoutMs, requestId, request, trace }: IncomingCall): void {
    const { credentials } = this.options;
    if (path === renewMethod) return credentials?.renew(request.toString());
    const nowMs = Date.now();
    const method = this.findMethod(path, nowMs);
    const call = new SessionCall(id);
    this.running.set(id, call);
    if (method instanceof ServiceError) return this.fail(call, method);
    call.deadline = startDeadline(timeoutMs, () => this.abandon(call));
    const context = {
      requestId,
      deadlineMs: nowMs + timeoutMs,
      signal: call.signal,
      caller: credentials?.caller,
      trace,
    };
    void this.run(call, method, request, context, path);
  }

  /** The method that is called, or why it may not be called now. */
  private findMethod(path: string, nowMs: number): MuxMethod | ServiceError {
    const { credentials, methods } = this.options;
    if (this.running.size >= windowItems)
      return new ServiceError('RESOURCE_EXHAUSTED', 'TOO_MANY_REQUESTS', 'Too many calls are under way');
    if (credentials?.isExpired(nowMs)) return credentials.expired();
    const method = this.allowedMethods.get(path);
    if (method) return method;
    if (credentials && methods.has(path)) return credentials.deny(path);
    return new ServiceError('UNIMPLEMENTED', 'NOT_IMPLEMENTED', 'There is no such method');
  }

  private async run(call: SessionCall, method: MuxMethod, request: Buffer, context: Call, path: string): Promise<void> {
    const { log, maxAnswerBytes } = this.options;
    try {
      const response = await runHandler(method.handler, method.deserialize(request), context, log, path);
      if (call.signal.aborted) return;
      const bytes = method.serialize(response);
      if (bytes.length > maxAnswerBytes)
        throw new ServiceError('RESOURCE_EXHAUSTED', 'RESULT_TOO_LARGE', 'The result is too large');
      this.responses.respond(call, bytes);
      this.pauseWhenFull();
    } catch (error) {
      this.fail(call, toServiceError(error, log, context.requestId, path));
    }
  }

  private fail(call: SessionCall, error: ServiceError): void {
    if (call.signal.aborted) return;
    this.responses.fail(call, toFailure(error));
    this.pauseWhenFull();
  }

  /** The caller has cancelled or gone, or its deadline has passed. */
  private abandon(call: SessionCall | undefined): void {
    if (!call) return;
    this.release(call);
    call.signal.abort();
    this.responses.discard(call);
    this.resumeWhenRoom();
    this.endWhenDone();
  }

  private release(call: SessionCall): void {
    if (call.deadline) cancelDeadline(call.deadline);
    this.running.delete(call.id);
  }

  private pauseWhenFull(): void {
    if (this.responses.bytes > queuedBytesMax || this.running.size > 2 * windowItems) this.duplex.pause();
  }

  private resumeWhenRoom(): void {
    const hasRoom = this.responses.bytes < queuedBytesMax / 2 && this.running.size <= windowItems;
    if (hasRoom && !this.isClosed && this.duplex.isPaused()) this.duplex.resume();
  }

  private endWhenDone(): void {
    const isDone = this.isCallerDone && this.running.size === 0;
    if (isDone && !this.isClosed && !this.duplex.writableEnded) this.duplex.end();
  }

  private close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    for (const call of [...this.running.values()]) this.abandon(call);
    this.responses.close();
    this.options.onClosed();
  }
}
