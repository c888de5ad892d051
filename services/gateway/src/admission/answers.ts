import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { BudgetLease } from '@granary/shared/concurrency/keyed-budget';
import { MinimumRateMonitor, type MonitoredTransfer } from './minimum-rate';
import { overloaded } from '../errors/problem';
import type { ClientKeys, RequestMemory } from './client-budget';

/**
 * Answers are written to the socket in pieces of this size, which shows how fast they are read. A smaller one is
 * written as a whole, and counts only if the socket does not accept it at once.
 */
const pieceBytes = 64 * 1024;

export interface AnswerSettings {
  READER_GRACE_MS: number;
  READER_MIN_BYTES_PER_SECOND: number;
}

/** The answers of one connection that are not sent yet. */
interface UnsentAnswers {
  count: number;
  /** The number of these answers that are being written; the others wait behind an earlier pipelined answer. */
  onSocket: number;
  transfer: MonitoredTransfer;
}

/**
 * Sends answers. Bytes that are not sent yet count against the memory of the process, by application, by address and in
 * total. A connection is closed when its client reads fewer bytes per second than the minimum, or when the memory is
 * needed and it is the one that has been idle longest.
 */
export class Answers {
  private readonly rate: MinimumRateMonitor;
  private readonly unsent = new WeakMap<Socket, UnsentAnswers>();
  private unsentCount = 0;
  private tooSlow = 0;
  private evicted = 0;

  constructor(
    private readonly memory: RequestMemory,
    settings: AnswerSettings,
  ) {
    this.rate = new MinimumRateMonitor({
      graceMs: settings.READER_GRACE_MS,
      windowMs: settings.READER_GRACE_MS,
      bytesPerSecond: settings.READER_MIN_BYTES_PER_SECOND,
    });
  }

  /**
   * Reserves memory for an answer of an estimated size before it is made, so that nothing is read that cannot be sent.
   * Undefined for a small one. Throws OVERLOADED.
   */
  reserve(expectedBytes: number, appId: string, address: string): BudgetLease | undefined {
    if (expectedBytes < pieceBytes) return undefined;
    const lease = this.memory.budget.open({ app: appId, address });
    if (lease.tryTake(Math.ceil(expectedBytes), this.memory.reserveBytes)) return lease;
    lease.release();
    throw overloaded();
  }

  /**
   * Charges an answer before its head is written, until its response is closed. Undefined for a small one that the
   * socket will probably accept at once; use `sendSmall` for it. Throws OVERLOADED when there is no memory.
   */
  hold(
    request: IncomingMessage,
    response: ServerResponse,
    { body, keys, isStreamed }: Outgoing,
  ): ChargedAnswer | undefined {
    const isTakenAtOnce = body.length < pieceBytes && response.socket?.writableLength === 0 && !isStreamed;
    if (isTakenAtOnce) return undefined;
    const held = this.charge(request, response, body.length, keys);
    if (!held) throw overloaded();
    if (isStreamed) held.observe();
    return held;
  }

  /** Sends an answer that was not charged, and charges what the socket did not accept at once. */
  sendSmall(request: IncomingMessage, response: ServerResponse, body: Buffer, keys: ClientKeys): void {
    response.end(body);
    const size = response.socket?.writableLength ?? 0;
    if (size > 0 && !response.writableFinished && !this.charge(request, response, size, keys)) request.socket.destroy();
  }

  counts(): { unsent: number; evicted: number; tooSlow: number } {
    return { unsent: this.unsentCount, evicted: this.evicted, tooSlow: this.tooSlow };
  }

  /** Charges an answer until its response is closed; undefined where there is no memory for it. */
  private charge(
    request: IncomingMessage,
    response: ServerResponse,
    sizeBytes: number,
    keys: ClientKeys,
  ): ChargedAnswer | undefined {
    const { socket } = request;
    const lease = this.memory.budget.open(keys, () => {
      this.evicted += 1;
      socket.destroy();
    });
    if (!lease.tryTake(sizeBytes, this.memory.reserveBytes)) {
      lease.release();
      return undefined;
    }
    const unsent = this.unsentOf(socket);
    unsent.count += 1;
    this.unsentCount += 1;
    let isOnSocket = false;
    const begin = () => {
      isOnSocket = true;
      unsent.onSocket += 1;
      unsent.transfer.resume();
    };
    if (response.socket) begin();
    else response.once('socket', begin);
    response.once('close', () => {
      lease.release();
      this.unsentCount -= 1;
      unsent.count -= 1;
      if (isOnSocket) unsent.onSocket -= 1;
      if (unsent.onSocket === 0) unsent.transfer.pause();
      // Its end is progress of the connection, whose next answer is written now.
      unsent.transfer.add(pieceBytes);
      if (unsent.count > 0) return;
      unsent.transfer.stop();
      this.unsent.delete(socket);
    });
    return new ChargedAnswer(response, lease, unsent.transfer);
  }

  private unsentOf(socket: Socket): UnsentAnswers {
    let unsent = this.unsent.get(socket);
    if (!unsent) {
      const transfer = this.rate.start(() => {
        this.tooSlow += 1;
        socket.destroy();
      });
      transfer.pause();
      this.unsent.set(socket, (unsent = { count: 0, onSocket: 0, transfer }));
    }
    return unsent;
  }
}

export interface Outgoing {
  body: Buffer;
  keys: ClientKeys;
  /** Another writer sends it, as other bytes: compressed. */
  isStreamed: boolean;
}

/** An answer whose bytes are charged until it has been sent. */
export class ChargedAnswer {
  constructor(
    private readonly response: ServerResponse,
    private readonly lease: BudgetLease,
    private readonly transfer: MonitoredTransfer,
  ) {}

  /** Sends the body piece by piece, as the client reads it. */
  send(body: Buffer): void {
    const { response } = this;
    let sentBytes = 0;
    const sendMore = () => {
      if (response.destroyed) return;
      if (sentBytes > 0) this.progress(pieceBytes);
      while (sentBytes + pieceBytes < body.length) {
        const piece = body.subarray(sentBytes, sentBytes + pieceBytes);
        sentBytes += pieceBytes;
        if (!response.write(piece) && response.writableLength > 0) {
          response.once('drain', sendMore);
          return;
        }
      }
      response.end(body.subarray(sentBytes));
    };
    sendMore();
  }

  /** Records the progress of an answer that another writer sends. */
  observe(): void {
    this.response.on('drain', () => this.progress(this.response.writableHighWaterMark));
  }

  private progress(sizeBytes: number): void {
    this.lease.touch();
    this.transfer.add(sizeBytes);
  }
}
