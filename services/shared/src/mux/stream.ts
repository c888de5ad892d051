import type { ClientDuplexStream } from '@grpc/grpc-js';
import type { Batch, BatchInput } from '../gen/granary/mux/v1/Batch';
import type { Call } from '../gen/granary/mux/v1/Call';
import { clockSkewMs, tokenLifetimeMs } from '../trust/token';
import type { CallCredentials } from '../trust/trust';
import { muxDefinition, renewMethod, unsentBytesMax, windowBytes, windowItems } from './protocol';

export type StreamDuplex = ClientDuplexStream<BatchInput, Batch>;

/** The age at which a token is renewed: early enough that a server whose clock is ahead still accepts it. */
const tokenRenewedAfterMs = tokenLifetimeMs - clockSkewMs;

const streamPath = muxDefinition.Stream.path;

/** The client's end of one stream. A stream that is draining takes no new calls, and ends with its last one. */
export class Stream<Item> {
  readonly inFlight = new Map<number, Item>();
  requestBytes = 0;
  lastReceivedMs = 0;
  /** The address that it has reached, once the server has answered. */
  peer: string | undefined = undefined;
  isDraining = false;
  /** The other streams are preferred until then: it was silent while calls timed out. */
  avoidUntilMs = 0;
  readonly openedAtMs = Date.now();
  /** The turn in which the stream was last chosen to take calls. */
  lastTurn = 0;
  private lastId = 0;
  private unsentBytes = 0;
  /** Ids of calls that were abandoned; they are sent with the next message. */
  private cancelled: number[] = [];
  private tokenDueMs: number;

  /** `onRoom` is called when a stream that was full has room again, or has cancellations to send. */
  constructor(
    /** The number of the last search that has come to its address, see stream-group.ts. */
    public search: number,
    private readonly duplex: StreamDuplex,
    private readonly credentials: CallCredentials | undefined,
    private readonly onRoom: () => void,
  ) {
    this.tokenDueMs = credentials ? Date.now() + tokenRenewedAfterMs : Infinity;
  }

  get hasRoom(): boolean {
    return this.inFlight.size < windowItems && this.requestBytes < windowBytes && this.unsentBytes < unsentBytesMax;
  }

  nextId(): number {
    return ++this.lastId;
  }

  write(calls: Call[], callBytes: number): void {
    const { cancelled } = this;
    const bytes = callBytes + 4 * cancelled.length;
    this.cancelled = [];
    this.unsentBytes += bytes;
    const renewal = this.tokenRenewal();
    this.duplex.write({ calls: renewal ? [renewal, ...calls] : calls, cancelled }, () => {
      const wasFull = this.unsentBytes >= unsentBytesMax;
      this.unsentBytes -= bytes;
      if (wasFull || this.cancelled.length > 0) this.onRoom();
    });
  }

  /** Sends the server, with the next message, that nobody waits for this call any more. */
  cancel(id: number): void {
    this.cancelled.push(id);
  }

  /** Sends pending cancellations, and ends a draining stream without calls. */
  maintain(): void {
    if (this.cancelled.length > 0 && this.unsentBytes < unsentBytesMax) this.write([], 0);
    if (this.isDraining && this.inFlight.size === 0 && this.cancelled.length === 0) this.duplex.end();
  }

  /** Ends a stream without calls at once. */
  closeIfIdle(): void {
    if (this.inFlight.size === 0) this.duplex.cancel();
  }

  /** Precedes the calls of a message when the server's token is about to expire. */
  private tokenRenewal(): Call | undefined {
    const nowMs = Date.now();
    if (!this.credentials || nowMs < this.tokenDueMs) return undefined;
    this.tokenDueMs = nowMs + tokenRenewedAfterMs;
    const request = Buffer.from(this.credentials.token(streamPath, ''));
    return { id: this.nextId(), method: renewMethod, timeoutMs: 0, requestId: '', request };
  }
}
