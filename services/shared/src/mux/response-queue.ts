import type { Cancellation } from '../concurrency/cancellation';
import type { Failure } from '../rpc/status';
import type { BatchInput } from '../gen/granary/mux/v1/Batch';
import type { FrameInput } from '../gen/granary/mux/v1/Frame';
import { frameBytes, itemOverheadBytes, messageBytes, unsentBytesMax, windowItems } from './protocol';

/** The part of a call that the queue has to know in order to send its response. */
export interface PendingResponse {
  readonly id: number;
  /** Aborted once nobody waits for the response any more; it is not sent then. */
  readonly signal: Cancellation;
  /** The encoded response, or undefined while there is none. */
  response: Buffer | undefined;
  /** How much of the response has been sent. */
  sentBytes: number;
  /** The error that is sent in place of a response. */
  failure: Failure | undefined;
}

export interface ResponseQueueEvents<Call> {
  /** Hands a message to the stream; `sent` is called when it has left. */
  write(batch: BatchInput, sent: () => void): void;
  /** The whole response of this call has been handed to the stream. */
  sent(call: Call): void;
  /** All that could be sent now has been sent. */
  flushed(): void;
}

/**
 * The responses of one stream that wait to be sent. Those that become ready in one turn of the event loop go in one
 * message: first small ones, each in one frame, then one frame of a large one. Large responses take turns, so that none
 * holds up the others or the small ones. Nothing is handed over while `unsentBytesMax` bytes have not left.
 */
export class ResponseQueue<Call extends PendingResponse> {
  private small: Call[] = [];
  private large: Call[] = [];
  private queuedBytes = 0;
  private unsentBytes = 0;
  private flushing: NodeJS.Immediate | undefined;
  private isClosed = false;

  constructor(private readonly events: ResponseQueueEvents<Call>) {}

  /** Bytes of responses that are queued. */
  get bytes(): number {
    return this.queuedBytes;
  }

  /** Queues the response of a call. */
  respond(call: Call, response: Buffer): void {
    call.response = response;
    this.queuedBytes += response.length;
    if (response.length <= frameBytes) this.pushSmall(call);
    else this.large.push(call);
    this.schedule();
  }

  /** Queues the failure of a call. */
  fail(call: Call, failure: Failure): void {
    call.failure = failure;
    this.pushSmall(call);
    this.schedule();
  }

  /** Frees the response of a call whose signal has been aborted; its entry is skipped when the queue gets there. */
  discard(call: Call): void {
    if (call.response) this.queuedBytes -= call.response.length - call.sentBytes;
    call.response = undefined;
  }

  /** Sends a message at once, ahead of what is queued. */
  send(batch: BatchInput, bytes: number): void {
    this.unsentBytes += bytes;
    this.events.write(batch, () => {
      this.unsentBytes -= bytes;
      if (!this.isClosed && (this.small.length > 0 || this.large.length > 0)) this.schedule();
    });
  }

  close(): void {
    this.isClosed = true;
    clearImmediate(this.flushing);
    this.small = [];
    this.large = [];
  }

  private pushSmall(call: Call): void {
    // While nothing can be sent, responses that nobody waits for must not pile up.
    if (this.small.length >= 2 * windowItems) this.small = this.small.filter(({ signal }) => !signal.aborted);
    this.small.push(call);
  }

  private schedule(): void {
    this.flushing ??= setImmediate(() => this.flush());
  }

  private flush(): void {
    this.flushing = undefined;
    while (!this.isClosed && this.unsentBytes < unsentBytesMax) {
      const frames: FrameInput[] = [];
      const bytes = this.takeSmall(frames) + this.takeLarge(frames);
      if (frames.length === 0) break;
      this.send({ frames }, bytes);
    }
    this.events.flushed();
  }

  /** Takes small responses for one message, and returns their size in it. */
  private takeSmall(frames: FrameInput[]): number {
    let bytes = 0;
    let index = 0;
    for (; index < this.small.length && bytes < messageBytes; index++) {
      const call = this.small[index]!;
      if (call.signal.aborted) continue;
      const frame = call.failure ? { id: call.id, failure: call.failure } : this.nextFrame(call);
      this.events.sent(call);
      frames.push(frame);
      bytes += itemOverheadBytes + (frame.payload?.length ?? 0);
    }
    if (index > 0) this.small = this.small.slice(index);
    return bytes;
  }

  /** Takes the next frame of one large response, and returns its size. */
  private takeLarge(frames: FrameInput[]): number {
    for (let call = this.large.shift(); call; call = this.large.shift()) {
      if (call.signal.aborted) continue;
      const frame = this.nextFrame(call);
      if (frame.more) this.large.push(call);
      else this.events.sent(call);
      frames.push(frame);
      return frameBytes;
    }
    return 0;
  }

  private nextFrame(call: Call): FrameInput {
    const { id, sentBytes: start } = call;
    const response = call.response!;
    const end = Math.min(start + frameBytes, response.length);
    call.sentBytes = end;
    this.queuedBytes -= end - start;
    return { id, payload: response.subarray(start, end), more: end < response.length };
  }
}
