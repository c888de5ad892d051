import type { Cancellation } from '../concurrency/cancellation';
import type { Failure } from '../rpc/status';
import type { BatchInput } from '../gen/granary/mux/v1/Batch';
import type { FrameInput } from '../gen/granary/mux/v1/Frame';
import { frameBytes, itemOverheadBytes, messageBytes, unsentBytesMax, windowItems } from './protocol';

/** The part of a call that the queue has to know in order to send its answer. */
export interface PendingAnswer {
  readonly id: number;
  /** Aborted once nobody waits for the answer any more; it is not sent then. */
  readonly signal: Cancellation;
  /** The encoded answer, or undefined while there is none. */
  answer: Buffer | undefined;
  /** How much of the answer has been sent. */
  sentBytes: number;
  /** The error that is sent in place of an answer. */
  failure: Failure | undefined;
}

export interface AnswerQueueEvents<Call> {
  /** Hands a message to the stream; `sent` is called when it has left. */
  write(batch: BatchInput, sent: () => void): void;
  /** The whole answer of this call has been handed to the stream. */
  answered(call: Call): void;
  /** All that could be sent now has been sent. */
  flushed(): void;
}

/**
 * The answers of one stream that wait to be sent. What becomes ready in one turn of the event loop goes in one message:
 * first small answers, each in one frame, then one frame of a large one. Large answers take turns, so that none holds
 * up the others or the small ones. Nothing is handed over while `unsentBytesMax` bytes have not left.
 */
export class AnswerQueue<Call extends PendingAnswer> {
  private small: Call[] = [];
  private large: Call[] = [];
  private queuedBytes = 0;
  private unsentBytes = 0;
  private flushing: NodeJS.Immediate | undefined;
  private isClosed = false;

  constructor(private readonly events: AnswerQueueEvents<Call>) {}

  /** Bytes of answers that are queued. */
  get bytes(): number {
    return this.queuedBytes;
  }

  /** Queues the answer of a call. */
  answer(call: Call, answer: Buffer): void {
    call.answer = answer;
    this.queuedBytes += answer.length;
    if (answer.length <= frameBytes) this.pushSmall(call);
    else this.large.push(call);
    this.schedule();
  }

  /** Queues the failure of a call. */
  fail(call: Call, failure: Failure): void {
    call.failure = failure;
    this.pushSmall(call);
    this.schedule();
  }

  /** Frees the answer of a call whose signal has been aborted; its entry is skipped when the queue gets there. */
  discard(call: Call): void {
    if (call.answer) this.queuedBytes -= call.answer.length - call.sentBytes;
    call.answer = undefined;
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
    // While nothing can be sent, answers that nobody waits for must not pile up.
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

  /** Takes small answers for one message, and returns their size in it. */
  private takeSmall(frames: FrameInput[]): number {
    let bytes = 0;
    let index = 0;
    for (; index < this.small.length && bytes < messageBytes; index++) {
      const call = this.small[index]!;
      if (call.signal.aborted) continue;
      const frame = call.failure ? { id: call.id, failure: call.failure } : this.nextFrame(call);
      this.events.answered(call);
      frames.push(frame);
      bytes += itemOverheadBytes + (frame.payload?.length ?? 0);
    }
    if (index > 0) this.small = this.small.slice(index);
    return bytes;
  }

  /** Takes the next frame of one large answer, and returns its size. */
  private takeLarge(frames: FrameInput[]): number {
    for (let call = this.large.shift(); call; call = this.large.shift()) {
      if (call.signal.aborted) continue;
      const frame = this.nextFrame(call);
      if (frame.more) this.large.push(call);
      else this.events.answered(call);
      frames.push(frame);
      return frameBytes;
    }
    return 0;
  }

  private nextFrame(call: Call): FrameInput {
    const { id, sentBytes: start } = call;
    const answer = call.answer!;
    const end = Math.min(start + frameBytes, answer.length);
    call.sentBytes = end;
    this.queuedBytes -= end - start;
    return { id, payload: answer.subarray(start, end), more: end < answer.length };
  }
}
