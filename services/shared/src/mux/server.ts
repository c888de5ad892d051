import { Metadata, type handleBidiStreamingCall, type ServerDuplexStream } from '@grpc/grpc-js';
import { ServiceError } from '../errors';
import type { Batch } from '../gen/granary/mux/v1/Batch';
import type { Call as Incoming } from '../gen/granary/mux/v1/Call';
import type { Logger } from '../logger';
import { tokenOf, type Authorization } from '../rpc/authorization';
import { Cancellation } from '../concurrency/cancellation';
import { startWaiting, stopWaiting, type Waiting } from '../concurrency/deadlines';
import { runHandler, type AnyHandler } from '../rpc/call';
import { toFailure, toServiceError, toStatus } from '../rpc/status';
import { itemOverheadBytes, messageBytes, frameBytes, renewMethod, unsentBytesMax, windowItems } from './protocol';
import { sliceParts, type Parts } from './answer';
import { openSessionCredentials, type SessionCredentials } from './credentials';
import { partsLength, type OutgoingBatch, type OutgoingFrame } from './codec';
import type { Call } from '../rpc/types';

/** A method that can be called through the stream. */
export interface MuxMethod {
  handler: AnyHandler;
  deserialize: (bytes: Buffer) => unknown;
  serialize: (response: unknown) => Parts;
}

/** What a server has under way on its streams. */
export interface MuxServerCounts {
  streams: number;
  calls: number;
  answerBytes: number;
}

export interface MuxServer {
  handlers: { Stream: handleBidiStreamingCall<Batch, OutgoingBatch> };
  /** Tells every caller to go on elsewhere; what they have sent here is still answered. */
  goAway(): void;
  counts(): MuxServerCounts;
}

type Duplex = ServerDuplexStream<Batch, OutgoingBatch>;

/** From here on no more calls are read, until half of the answers has gone: the caller does not read them. */
const answerBytesMax = 8 * 1024 * 1024;

interface Stream {
  goAway(): void;
  counts(): { calls: number; answerBytes: number };
}

interface Item {
  id: number;
  /** Aborted when nobody waits for the answer any more. */
  signal: Cancellation;
  waiting?: Waiting;
  answer?: Parts;
  answerBytes: number;
  /** How much of the answer has been sent. */
  sentBytes: number;
  piece?: OutgoingFrame;
}

/** The service's end of the streams. `maxAnswerBytes`: a larger answer becomes RESULT_TOO_LARGE, as it does in gRPC. */
export function createMuxServer(
  methods: ReadonlyMap<string, MuxMethod>,
  maxAnswerBytes: number,
  log: Logger,
  admitted?: Authorization,
): MuxServer {
  const streams = new Set<Stream>();
  let leaving = false;
  return {
    handlers: {
      Stream: (duplex: Duplex) => {
        let passport: SessionCredentials<MuxMethod> | undefined;
        try {
          passport = admitted && openSessionCredentials(admitted, tokenOf(duplex.metadata), methods);
        } catch (error) {
          duplex.emit('error', toStatus(error as ServiceError));
          return;
        }
        const stream = serve(duplex, methods, passport, maxAnswerBytes, log, () => streams.delete(stream));
        streams.add(stream);
        if (leaving) stream.goAway();
      },
    },
    goAway: () => {
      leaving = true;
      for (const stream of streams) stream.goAway();
    },
    counts: () => {
      const counts = { streams: streams.size, calls: 0, answerBytes: 0 };
      for (const stream of streams) {
        const { calls, answerBytes } = stream.counts();
        counts.calls += calls;
        counts.answerBytes += answerBytes;
      }
      return counts;
    },
  };
}

function serve(
  duplex: Duplex,
  methods: ReadonlyMap<string, MuxMethod>,
  passport: SessionCredentials<MuxMethod> | undefined,
  maxAnswerBytes: number,
  log: Logger,
  gone: () => void,
): Stream {
  const { caller, methods: callable = methods } = passport ?? {};
  const running = new Map<number, Item>();
  // Answers that fit into a piece, and those that do not: each message takes of the first, then a piece of the second.
  let small: Item[] = [];
  let large: Item[] = [];
  let answerBytes = 0;
  let unsentBytes = 0;
  let flushing: NodeJS.Immediate | undefined;
  let callerDone = false;
  let closed = false;

  // Says at once that the stream stands, so that the caller knows which address it has reached.
  duplex.sendMetadata(new Metadata());
  duplex.on('data', ({ calls, cancelled }: Batch) => {
    for (const id of cancelled) abandon(running.get(id));
    for (const call of calls) start(call);
  });
  duplex.on('end', () => {
    callerDone = true;
    endWhenDone();
  });
  duplex.on('cancelled', close);
  duplex.on('close', close);
  duplex.on('error', close);

  function start({ id, method: path, timeoutMs, requestId, request, trace }: Incoming) {
    const method = callable.get(path);
    if (!method && path === renewMethod) return passport?.renew(request.toString());
    const item: Item = { id, signal: new Cancellation(), answerBytes: 0, sentBytes: 0 };
    const full = running.size >= windowItems;
    running.set(id, item);
    const nowMs = Date.now();
    if (full) {
      fail(item, new ServiceError('RESOURCE_EXHAUSTED', 'TOO_MANY_REQUESTS', 'Too many calls are under way'));
    } else if (passport?.isExpired(nowMs)) {
      fail(item, passport.expired());
    } else if (!method && passport && methods.has(path)) {
      fail(item, passport.deny(path));
    } else if (!method) {
      fail(item, new ServiceError('UNIMPLEMENTED', 'NOT_IMPLEMENTED', 'There is no such method'));
    } else {
      item.waiting = startWaiting(timeoutMs, () => abandon(item));
      const call: Call = { requestId, deadlineMs: nowMs + timeoutMs, signal: item.signal, caller, trace };
      void run(item, method, request, call, path);
    }
  }

  async function run(item: Item, method: MuxMethod, request: Buffer, call: Call, path: string) {
    try {
      const response = await runHandler(method.handler, method.deserialize(request), call, log, path);
      if (item.signal.aborted) return;
      const answer = method.serialize(response);
      const bytes = partsLength(answer);
      if (bytes > maxAnswerBytes)
        throw new ServiceError('RESOURCE_EXHAUSTED', 'RESULT_TOO_LARGE', 'The result is too large');
      item.answer = answer;
      item.answerBytes = bytes;
      answerBytes += bytes;
      if (bytes <= frameBytes) pushSmall(item);
      else large.push(item);
      schedule();
      pauseWhenFull();
    } catch (error) {
      fail(item, toServiceError(error, log, call.requestId, path));
    }
  }

  function fail(item: Item, error: ServiceError) {
    if (item.signal.aborted) return;
    item.piece = { id: item.id, failure: toFailure(error) };
    pushSmall(item);
    schedule();
    pauseWhenFull();
  }

  function pushSmall(item: Item) {
    // While nothing can be sent, those that nobody waits for must not pile up.
    if (small.length >= 2 * windowItems) small = small.filter(({ signal }) => !signal.aborted);
    small.push(item);
  }

  /** The caller has cancelled, its deadline has passed, or it has gone. */
  function abandon(item: Item | undefined) {
    if (!item) return;
    release(item);
    item.signal.abort();
    if (item.answer) answerBytes -= item.answerBytes - item.sentBytes;
    delete item.answer;
    resumeWhenRoom();
    endWhenDone();
  }

  function release(item: Item) {
    if (item.waiting) stopWaiting(item.waiting);
    running.delete(item.id);
  }

  function schedule() {
    flushing ??= setImmediate(flush);
  }

  function flush() {
    flushing = undefined;
    while (!closed && unsentBytes < unsentBytesMax) {
      const [pieces, bytes] = nextPieces();
      if (pieces.length === 0) break;
      send({ frames: pieces }, bytes);
    }
    resumeWhenRoom();
    endWhenDone();
  }

  function nextPieces(): [OutgoingFrame[], number] {
    const pieces: OutgoingFrame[] = [];
    let bytes = 0;
    let at = 0;
    for (; at < small.length && bytes < messageBytes; at++) {
      const item = small[at]!;
      if (item.signal.aborted) continue;
      const piece = item.piece ?? take(item);
      release(item);
      pieces.push(piece);
      bytes += itemOverheadBytes + partsLength(piece.payload ?? []);
    }
    if (at > 0) small = small.slice(at);
    for (let item = large.shift(); item; item = large.shift()) {
      if (item.signal.aborted) continue;
      const piece = take(item);
      if (piece.more) large.push(item);
      else release(item);
      pieces.push(piece);
      bytes += frameBytes;
      break;
    }
    return [pieces, bytes];
  }

  function take(item: Item): OutgoingFrame {
    const start = item.sentBytes;
    item.sentBytes = Math.min(start + frameBytes, item.answerBytes);
    answerBytes -= item.sentBytes - start;
    // Most answers go whole, and their parts as they are.
    const whole = item.answerBytes <= frameBytes;
    const payload = whole ? item.answer! : sliceParts(item.answer!, start, item.sentBytes);
    return { id: item.id, payload, more: item.sentBytes < item.answerBytes };
  }

  function send(batch: OutgoingBatch, bytes: number) {
    unsentBytes += bytes;
    duplex.write(batch, () => {
      unsentBytes -= bytes;
      if (!closed && (small.length > 0 || large.length > 0)) schedule();
    });
  }

  function pauseWhenFull() {
    if (answerBytes > answerBytesMax || running.size > 2 * windowItems) duplex.pause();
  }

  function resumeWhenRoom() {
    const room = answerBytes < answerBytesMax / 2 && running.size <= windowItems;
    if (room && !closed && duplex.isPaused()) duplex.resume();
  }

  function endWhenDone() {
    if (callerDone && running.size === 0 && !closed && !duplex.writableEnded) duplex.end();
  }

  function close() {
    if (closed) return;
    closed = true;
    clearImmediate(flushing);
    for (const item of [...running.values()]) abandon(item);
    small = [];
    large = [];
    gone();
  }

  return {
    goAway: () => {
      if (!closed && !duplex.writableEnded) send({ goingAway: true }, itemOverheadBytes);
    },
    counts: () => ({ calls: running.size, answerBytes }),
  };
}
