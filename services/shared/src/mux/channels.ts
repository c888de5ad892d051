import { Client as GrpcClient, credentials, Metadata, type ClientDuplexStream } from '@grpc/grpc-js';
import type { ServiceError as GrpcError } from '@grpc/grpc-js';
import type { Batch } from '../gen/granary/mux/v1/Batch';
import type { Call } from '../gen/granary/mux/v1/Call';
import { clockSkewMs, tokenHeader, tokenLifetimeMs } from '../trust/token';
import type { CallCredentials } from '../trust/trust';
import { muxDefinition, renewMethod, unsentBytesMax, windowBytes, windowItems } from './protocol';
import type { OutgoingBatch } from './codec';

/** A place for a stream, with a connection of its own. */
export interface Channel<Item> {
  connection: GrpcClient;
  stream?: Stream<Item>;
  /** How often its streams have moved because another lane has reached the same address. */
  moves: number;
  /** The other lanes are preferred until then: this one broke, or has not been heard while calls ran out of time. */
  doubtfulUntilMs: number;
}

/** One stream to one server; it gives way to another in its lane, and ends once its own calls have. */
export interface Stream<Item> {
  lane: Channel<Item>;
  duplex: ClientDuplexStream<OutgoingBatch, Batch>;
  inFlight: Map<number, Item>;
  requestBytes: number;
  lastId: number;
  /** Ids of calls that have been given up; they are sent with the next message. */
  cancelled: number[];
  unsentBytes: number;
  heardAtMs: number;
  /** The address that it has reached. */
  peer?: string;
  draining: boolean;
  renewal: NodeJS.Timeout;
  /** When the server is to be sent a new token. */
  tokenDueMs: number;
}

export interface ChannelOptions {
  address: string;
  channelOptions: Record<string, string | number>;
  count: number;
  renewAfterMs: number;
  /** Absent: its calls are neither signed nor encrypted. */
  own?: CallCredentials | undefined;
}

/** What the owner of the lanes hears of their streams. */
export interface ChannelEvents<Item> {
  received(stream: Stream<Item>, batch: Batch): void;
  /** It is gone, and whatever is in its `inFlight` will have no answer. */
  broken(stream: Stream<Item>, error: GrpcError | undefined): void;
  /** There may be room, or a stream to be ended: `tidy` is wanted. */
  changed(): void;
}

export interface Channels<Item> {
  /** The stream with the fewest calls that has room, opened if need be. */
  roomiest(nowMs: number): Stream<Item> | undefined;
  write(stream: Stream<Item>, calls: Call[], bytes: number): void;
  /** Nothing more is sent on it but cancellations. */
  retire(stream: Stream<Item>): void;
  /** A call on it has run out of time. */
  silent(stream: Stream<Item>, sentAtMs: number): void;
  /** Sends cancellations that are left, and ends what has been drained. */
  tidy(): void;
  /** Ends every stream without calls, and the connections with the last. */
  close(): void;
  counts(): { streams: number; renewals: number };
}

/** How often a lane tries for an address of its own; in vain where there is only one. */
const movesMax = 2;
const doubtfulAfterBreakMs = 1_000;
const doubtfulAfterSilenceMs = 5_000;

/** So that it is good for a server whose clock is ahead. */
const tokenRenewedAfterMs = tokenLifetimeMs - clockSkewMs;

const { path: carryPath, requestSerialize, responseDeserialize } = muxDefinition.Stream;

export function openChannels<Item>(options: ChannelOptions, events: ChannelEvents<Item>): Channels<Item> {
  const { address, channelOptions, count, renewAfterMs, own } = options;
  const lanes = Array.from({ length: count }, (): Channel<Item> => ({
    connection: connect(),
    moves: 0,
    doubtfulUntilMs: 0,
  }));
  const open = new Set<Stream<Item>>();
  let renewals = 0;

  function connect(): GrpcClient {
    return new GrpcClient(address, own?.channel ?? credentials.createInsecure(), {
      ...channelOptions,
      // Else the lanes would share a connection, and what stalls one would stall all.
      'grpc.use_local_subchannel_pool': 1,
      'grpc.service_config': JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
      // It would keep what has been sent in order to send it again; a call is repeated above this, if it may be.
      'grpc.enable_retries': 0,
      'grpc-node.flow_control_window': 1024 * 1024,
    });
  }

  function openStream(lane: Channel<Item>): Stream<Item> {
    const { connection } = lane;
    const metadata = new Metadata();
    if (own) metadata.set(tokenHeader, own.token(carryPath, ''));
    const duplex = connection.makeBidiStreamRequest(carryPath, requestSerialize, responseDeserialize, metadata);
    const renew = () => {
      lane.moves = 0;
      retire(stream);
    };
    const stream: Stream<Item> = {
      lane,
      duplex,
      inFlight: new Map(),
      requestBytes: 0,
      lastId: 0,
      cancelled: [],
      unsentBytes: 0,
      heardAtMs: 0,
      draining: false,
      renewal: setTimeout(renew, renewAfterMs * (0.8 + 0.4 * Math.random())).unref(),
      tokenDueMs: own ? Date.now() + tokenRenewedAfterMs : Infinity,
    };
    duplex.on('metadata', () => reached(stream, duplex.getPeer()));
    duplex.on('data', (batch: Batch) => {
      stream.heardAtMs = Date.now();
      lane.doubtfulUntilMs = 0;
      events.received(stream, batch);
      if (batch.goingAway) retire(stream);
    });
    duplex.on('end', () => broken(stream));
    duplex.on('error', (error: GrpcError) => broken(stream, error));
    lane.stream = stream;
    open.add(stream);
    return stream;
  }

  /** Each stream begins at some address; two at one of several would leave another idle. */
  function reached(stream: Stream<Item>, peer: string) {
    stream.peer = peer;
    const { lane } = stream;
    if (lane.moves >= movesMax || !lanes.some((other) => other !== lane && other.stream?.peer === peer)) return;
    lane.moves++;
    retire(stream);
  }

  function retire(stream: Stream<Item>) {
    if (stream.draining || !open.has(stream)) return;
    stream.draining = true;
    clearTimeout(stream.renewal);
    delete stream.lane.stream;
    renewals++;
    events.changed();
  }

  function broken(stream: Stream<Item>, error?: GrpcError) {
    if (!open.delete(stream)) return;
    clearTimeout(stream.renewal);
    if (!stream.draining) delete stream.lane.stream;
    if (error) stream.lane.doubtfulUntilMs = Date.now() + doubtfulAfterBreakMs;
    events.broken(stream, error);
    events.changed();
  }

  /** Goes ahead of other calls, when the server's is about to run out. */
  function tokenRenewal(stream: Stream<Item>): Call | undefined {
    const nowMs = Date.now();
    if (!own || nowMs < stream.tokenDueMs) return undefined;
    stream.tokenDueMs = nowMs + tokenRenewedAfterMs;
    const request = Buffer.from(own.token(carryPath, ''));
    return { id: ++stream.lastId, method: renewMethod, timeoutMs: 0, requestId: '', request };
  }

  function write(stream: Stream<Item>, calls: Call[], callBytes: number) {
    const { cancelled } = stream;
    const bytes = callBytes + 4 * cancelled.length;
    stream.cancelled = [];
    stream.unsentBytes += bytes;
    const renewal = tokenRenewal(stream);
    stream.duplex.write({ calls: renewal ? [renewal, ...calls] : calls, cancelled }, () => {
      const wasFull = stream.unsentBytes >= unsentBytesMax;
      stream.unsentBytes -= bytes;
      if (wasFull || stream.cancelled.length > 0) events.changed();
    });
  }

  return {
    roomiest: (nowMs) => {
      let best: Channel<Item> | undefined;
      let bestLoad = Infinity;
      for (const lane of lanes) {
        if (lane.stream && !hasRoom(lane.stream)) continue;
        const load = (lane.stream?.inFlight.size ?? 0) + (lane.doubtfulUntilMs > nowMs ? windowItems : 0);
        if (load < bestLoad) [best, bestLoad] = [lane, load];
      }
      // Where several are alike, they take turns.
      lanes.push(lanes.shift()!);
      return best && (best.stream ?? openStream(best));
    },
    write,
    retire,
    silent: ({ heardAtMs, lane }, sentAtMs) => {
      if (heardAtMs < sentAtMs) lane.doubtfulUntilMs = Date.now() + doubtfulAfterSilenceMs;
    },
    tidy: () => {
      for (const stream of open) {
        const { cancelled, unsentBytes, draining, inFlight, duplex } = stream;
        if (cancelled.length > 0 && unsentBytes < unsentBytesMax) write(stream, [], 0);
        if (draining && inFlight.size === 0 && stream.cancelled.length === 0) duplex.end();
      }
    },
    close: () => {
      for (const { inFlight, duplex } of open) if (inFlight.size === 0) duplex.cancel();
      if (open.size === 0) for (const { connection } of lanes) connection.close();
    },
    counts: () => ({ streams: open.size, renewals }),
  };
}

function hasRoom({ inFlight, requestBytes, unsentBytes }: Stream<unknown>): boolean {
  return inFlight.size < windowItems && requestBytes < windowBytes && unsentBytes < unsentBytesMax;
}
