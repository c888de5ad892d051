import { status, type ServiceError as GrpcError } from '@grpc/grpc-js';
import { ServiceError, unavailable } from '../errors';
import type { Batch } from '../gen/granary/mux/v1/Batch';
import type { Call as Outgoing } from '../gen/granary/mux/v1/Call';
import { asOurFault, callRefused } from '../trust/guard';
import type { CallCredentials } from '../trust/trust';
import { startWaiting, stopWaiting, type Waiting } from '../concurrency/deadlines';
import { deadlinePassed } from '../rpc/call';
import { fromFailure, fromStatus } from '../rpc/status';
import { itemOverheadBytes, messageBytes, windowItems } from './protocol';
import { openChannels, type Stream } from './channels';
import { fairQueue } from '../concurrency/fair-queue';
import type { Call } from '../rpc/types';

/** What a client has under way; when nothing is, only streams are left, which stay open. */
export interface MuxClientCounts {
  /** Calls that have not been sent: the window is full. */
  waiting: number;
  inFlight: number;
  /** Open ones, those that are being drained among them. */
  streams: number;
  /** How often one stream gave way to another. */
  renewals: number;
}

export interface MuxClientOptions {
  /** Streams of one client, each on a connection of its own. */
  streams?: number;
  /** A stream is renewed after this time, a fifth more or less, so that copies of a service share the load. */
  renewAfterMs?: number;
  /** How many calls may wait; further ones are refused at once. */
  waitingMax?: number;
}

export interface MuxClient {
  /** `request` and the answer are encoded messages; `key` says for whom: the calls of different keys take turns. */
  send(path: string, request: Buffer, key: string, call: Call): Promise<Buffer>;
  /** Whether there is a server that has no streams (an older release): the caller had better send unary calls. */
  unsupported(): boolean;
  counts(): MuxClientCounts;
  /** What is under way is finished. */
  close(): void;
}

interface Item {
  path: string;
  request: Buffer;
  key: string;
  call: Call;
  waiting: Waiting;
  cancel: () => void;
  resolve: (answer: Buffer) => void;
  reject: (error: Error) => void;
  /** Once it has been sent. */
  stream: Stream<Item> | undefined;
  id: number;
  sentAtMs: number;
  pieces: Buffer[] | undefined;
  answerBytes: number;
}

const defaults: Required<MuxClientOptions> = { streams: 2, renewAfterMs: 60_000, waitingMax: 8_192 };

/**
 * An app may have no more than this of the window, so that there is room for another at once, and of those that wait.
 * Calls without an app (the empty key) are not bounded so.
 */
const shareOfOneApp = 1 / 4;
const waitingBytesMax = 64 * 1024 * 1024;

const unsupportedForMs = 60_000;
const longestTimeoutMs = 2 ** 31 - 1;

/** The caller's end of the streams to one address. `maxAnswerBytes` bounds what a server can make it hold. */
export function openMuxClient(
  address: string,
  channelOptions: Record<string, string | number>,
  maxAnswerBytes: number,
  options: MuxClientOptions = {},
  own?: CallCredentials,
): MuxClient {
  const { streams: count, renewAfterMs, waitingMax } = { ...defaults, ...options };
  const lanes = openChannels<Item>(
    { address, channelOptions, count, renewAfterMs, own },
    { received, broken, changed: schedule },
  );
  const queue = fairQueue<Item>();
  let waitingBytes = 0;
  // The window is the client's: calls on a stream that is being drained count as well.
  const inFlightMax = windowItems * count;
  const inFlightOf = new Map<string, number>();
  let inFlight = 0;
  let unsupportedUntilMs = 0;
  let flushing: NodeJS.Immediate | undefined;
  let closing = false;

  function send(path: string, request: Buffer, key: string, call: Call): Promise<Buffer> {
    if (closing) return Promise.reject(unavailable('The client is closed'));
    if (call.signal.aborted) return Promise.reject(cancelled());
    const timeoutMs = call.deadlineMs - Date.now();
    if (timeoutMs <= 0) return Promise.reject(deadlinePassed());
    const share = key === '' ? waitingMax : waitingMax * shareOfOneApp;
    if (queue.size >= waitingMax || queue.sizeOf(key) >= share || waitingBytes >= waitingBytesMax)
      return Promise.reject(new ServiceError('RESOURCE_EXHAUSTED', 'TOO_MANY_REQUESTS', 'Too many requests wait'));
    return new Promise((resolve, reject) => {
      const waiting = startWaiting(timeoutMs, () => expire(item));
      const cancel = () => giveUp(item, cancelled());
      const item: Item = {
        path,
        request,
        key,
        call,
        waiting,
        cancel,
        resolve,
        reject,
        stream: undefined,
        id: 0,
        sentAtMs: 0,
        pieces: undefined,
        answerBytes: 0,
      };
      call.signal.addEventListener('abort', cancel, { once: true });
      queue.add(key, item);
      waitingBytes += request.length;
      schedule();
    });
  }

  function expire(item: Item) {
    if (item.stream) lanes.silent(item.stream, item.sentAtMs);
    giveUp(item, deadlinePassed());
  }

  function giveUp(item: Item, error: ServiceError) {
    item.stream?.cancelled.push(item.id);
    settle(item);
    item.reject(error);
    schedule();
  }

  /** Leaves nothing of an item behind, wherever it is. */
  function settle(item: Item) {
    stopWaiting(item.waiting);
    item.call.signal.removeEventListener('abort', item.cancel);
    const { stream, key, request } = item;
    if (!stream) {
      if (queue.remove(key, item)) waitingBytes -= request.length;
      return;
    }
    stream.inFlight.delete(item.id);
    stream.requestBytes -= request.length;
    inFlight--;
    const left = inFlightOf.get(key)! - 1;
    if (left > 0) inFlightOf.set(key, left);
    else inFlightOf.delete(key);
    if (queue.size > 0 || stream.draining || closing) schedule();
  }

  function schedule() {
    flushing ??= setImmediate(flush);
  }

  /** Once in a turn of the event loop: sends what has come up in it. */
  function flush() {
    flushing = undefined;
    const nowMs = Date.now();
    while (queue.size > 0 && inFlight < inFlightMax) {
      const stream = lanes.roomiest(nowMs);
      if (!stream || !fill(stream, nowMs)) break;
    }
    lanes.tidy();
    if (closing && queue.size === 0) lanes.close();
  }

  /** Sends one message of what waits; false when there was nothing that may be sent now. */
  function fill(stream: Stream<Item>, nowMs: number): boolean {
    const calls: Outgoing[] = [];
    let bytes = 0;
    const held = (key: string) => key !== '' && (inFlightOf.get(key) ?? 0) >= inFlightMax * shareOfOneApp;
    while (bytes < messageBytes && stream.inFlight.size < windowItems && inFlight < inFlightMax) {
      const item = queue.take(held);
      if (!item) break;
      const { path: method, request, key, call } = item;
      waitingBytes -= request.length;
      item.stream = stream;
      item.id = ++stream.lastId;
      item.sentAtMs = nowMs;
      stream.inFlight.set(item.id, item);
      stream.requestBytes += request.length;
      inFlight++;
      inFlightOf.set(key, (inFlightOf.get(key) ?? 0) + 1);
      const timeoutMs = Math.min(Math.max(0, call.deadlineMs - nowMs), longestTimeoutMs);
      const sent: Outgoing = { id: item.id, method, timeoutMs, requestId: call.requestId, request };
      if (call.trace !== undefined) sent.trace = call.trace;
      calls.push(sent);
      bytes += request.length + itemOverheadBytes;
    }
    if (calls.length > 0) lanes.write(stream, calls, bytes);
    return calls.length > 0;
  }

  function received(stream: Stream<Item>, { frames }: Batch) {
    for (const { id, payload, more, failure } of frames) {
      const item = stream.inFlight.get(id);
      if (!item) continue;
      item.answerBytes += payload.length;
      if (failure) {
        settle(item);
        item.reject(asOurFault(fromFailure(failure)));
      } else if (item.answerBytes > maxAnswerBytes) {
        giveUp(item, new ServiceError('RESOURCE_EXHAUSTED', 'RESULT_TOO_LARGE', 'The result is too large'));
      } else if (more) {
        (item.pieces ??= []).push(payload);
      } else {
        settle(item);
        item.resolve(item.pieces ? Buffer.concat([...item.pieces, payload]) : payload);
      }
    }
  }

  /** Unless it was refused from the start, its calls have got no answer: whether they had an effect is not known. */
  function broken(stream: Stream<Item>, error: GrpcError | undefined) {
    if (error?.code === status.UNIMPLEMENTED) unsupportedUntilMs = Date.now() + unsupportedForMs;
    const said = error && fromStatus(error);
    // A server that has accepted the stream may have begun with its calls, whatever it ends the stream with.
    const cause = stream.peer === undefined ? error : new Error('the stream broke', { cause: error });
    const why = said?.reason === callRefused ? asOurFault(said) : unavailable('A service cannot be reached', cause);
    for (const item of [...stream.inFlight.values()]) {
      settle(item);
      item.reject(why);
    }
  }

  return {
    send,
    unsupported: () => Date.now() < unsupportedUntilMs,
    counts: () => ({ waiting: queue.size, inFlight, ...lanes.counts() }),
    close: () => {
      closing = true;
      schedule();
    },
  };
}

function cancelled(): ServiceError {
  return new ServiceError('CANCELLED', 'CANCELLED', 'The request was cancelled');
}
