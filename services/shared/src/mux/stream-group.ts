import { Client as GrpcClient, credentials, Metadata, type ServiceError as GrpcError } from '@grpc/grpc-js';
import { jittered } from '../concurrency/backoff';
import type { Batch } from '../gen/granary/mux/v1/Batch';
import { tokenHeader } from '../trust/token';
import type { CallCredentials } from '../trust/trust';
import { muxDefinition } from './protocol';
import { Stream, type StreamDuplex } from './stream';

export interface StreamGroupOptions {
  address: string;
  /** The channel options of grpc-js. */
  channelOptions: Record<string, string | number>;
  /** Age at which a stream is replaced by a new one. */
  renewAfterMs: number;
  /** How many streams may take calls at a time: one, or one for each address. */
  streamsMax: number;
  /** Absent: calls are neither signed nor encrypted. */
  own?: CallCredentials | undefined;
}

export interface StreamEvents<Item> {
  received(stream: Stream<Item>, batch: Batch): void;
  /** The stream is gone; the calls in its `inFlight` get no answer. */
  broken(stream: Stream<Item>, error: GrpcError | undefined): void;
  /** There may be room for calls, or a stream to end: `maintain` is needed. */
  changed(): void;
}

/** The time between two searches: the first one, doubled until the other by each search that finds nothing new. */
const searchFirstMs = 10;
const searchMaxMs = 10_000;
const searchTimeoutMs = 5_000;
const avoidAfterBreakMs = 1_000;

const { path: streamPath, requestSerialize, responseDeserialize } = muxDefinition.Stream;

/**
 * Streams over one client of gRPC, which connects to all addresses of a service and opens streams on them in turn. So a
 * search opens one stream after the other, until it comes to an address for the second time: every address then has a
 * stream. Streams of a certain age are replaced by those of a search.
 */
export class StreamGroup<Item> {
  /** The streams that take calls. */
  readonly streams = new Set<Stream<Item>>();
  /** Other groups are preferred until then: a stream of this one broke. */
  avoidUntilMs = 0;
  renewals = 0;
  /** All open streams, also those that are draining. */
  private readonly open = new Set<Stream<Item>>();
  private connection: GrpcClient | undefined;
  private searches = 0;
  private searching: Stream<Item> | undefined;
  private hasFound = false;
  private intervalMs = 0;
  private timer: NodeJS.Timeout | undefined;
  private isClosed = false;

  constructor(
    private readonly options: StreamGroupOptions,
    private readonly events: StreamEvents<Item>,
  ) {}

  get openCount(): number {
    return this.open.size;
  }

  /** How many addresses its streams have reached. */
  get addresses(): number {
    let count = 0;
    for (const { peer } of this.streams) if (peer !== undefined) count++;
    return count;
  }

  /** Opens a stream, and others to the other addresses if there may be several. */
  search(): Stream<Item> {
    this.searches++;
    this.hasFound = false;
    this.schedule(searchTimeoutMs, () => this.endSearch());
    return (this.searching = this.openStream());
  }

  /** Sends pending cancellations, and ends streams that have drained. */
  maintain(): void {
    for (const stream of this.open) stream.maintain();
  }

  /** Takes no more calls until the next search. */
  retire(): void {
    if (this.streams.size === 0 && this.timer === undefined) return;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.searching = undefined;
    for (const stream of this.streams) this.drain(stream);
  }

  /** Ends every stream without calls, and with the last stream the connections. */
  close(): void {
    this.isClosed = true;
    clearTimeout(this.timer);
    for (const stream of this.open) stream.closeIfIdle();
    if (this.open.size === 0) this.connection?.close();
  }

  private openStream(): Stream<Item> {
    const { own: callCredentials } = this.options;
    this.connection ??= connect(this.options);
    const metadata = new Metadata();
    if (callCredentials) metadata.set(tokenHeader, callCredentials.token(streamPath, ''));
    const duplex: StreamDuplex = this.connection.makeBidiStreamRequest(
      streamPath,
      requestSerialize,
      responseDeserialize,
      metadata,
    );
    const stream = new Stream<Item>(this.searches, duplex, callCredentials, () => this.events.changed());
    duplex.on('metadata', () => this.connected(stream, duplex.getPeer()));
    duplex.on('data', (batch: Batch) => this.receive(stream, batch));
    duplex.on('end', () => this.broken(stream));
    duplex.on('error', (error: GrpcError) => this.broken(stream, error));
    this.streams.add(stream);
    this.open.add(stream);
    return stream;
  }

  private receive(stream: Stream<Item>, batch: Batch): void {
    stream.lastReceivedMs = Date.now();
    stream.avoidUntilMs = 0;
    this.events.received(stream, batch);
    if (!batch.goingAway || stream.isDraining) return;
    this.drain(stream);
    this.searchSoon();
  }

  private connected(stream: Stream<Item>, peer: string): void {
    stream.peer = peer;
    if (stream !== this.searching) return;
    const same = [...this.streams].find((other) => other !== stream && other.peer === peer);
    const isCycle = same?.search === this.searches;
    if (!same) this.hasFound = true;
    else if (isCycle || Date.now() - same.openedAtMs < this.options.renewAfterMs / 2) {
      same.search = this.searches;
      this.streams.delete(stream);
      stream.isDraining = true;
      this.events.changed();
    } else this.drain(same);
    if (isCycle || this.streams.size >= this.options.streamsMax) this.endSearch();
    else this.searching = this.openStream();
  }

  /** An address that has no connection at the moment keeps its old stream, for a while. */
  private endSearch(): void {
    const { renewAfterMs, streamsMax } = this.options;
    const nowMs = Date.now();
    const searching = this.searching;
    this.searching = undefined;
    // This stream has not connected within the time of a search.
    if (searching && searching.peer === undefined && this.streams.size > 1) this.drain(searching);
    for (const stream of this.streams) {
      const isSurplus = this.streams.size > streamsMax && stream.search < this.searches;
      if (isSurplus || nowMs - stream.openedAtMs > 2 * renewAfterMs) this.drain(stream);
    }
    const nextMs = this.hasFound ? searchFirstMs : Math.max(2 * this.intervalMs, searchFirstMs);
    this.intervalMs = streamsMax === 1 ? renewAfterMs : Math.min(nextMs, searchMaxMs, renewAfterMs);
    this.schedule(this.intervalMs, () => this.search());
  }

  /** The addresses have changed. */
  private searchSoon(): void {
    this.intervalMs = 0;
    if (!this.searching && this.streams.size > 0) this.schedule(searchFirstMs, () => this.search());
  }

  private schedule(ms: number, work: () => void): void {
    clearTimeout(this.timer);
    this.timer = this.isClosed ? undefined : setTimeout(work, jittered(ms)).unref();
  }

  /** Takes a stream out of use: from then on nothing but cancellations is sent on it. */
  private drain(stream: Stream<Item>): void {
    if (!this.streams.delete(stream)) return;
    stream.isDraining = true;
    this.renewals++;
    this.events.changed();
  }

  private broken(stream: Stream<Item>, error?: GrpcError): void {
    if (!this.open.delete(stream)) return;
    this.streams.delete(stream);
    if (error) this.avoidUntilMs = Date.now() + avoidAfterBreakMs;
    if (stream === this.searching) this.endSearch();
    else if (!stream.isDraining) this.searchSoon();
    this.events.broken(stream, error);
    this.events.changed();
  }
}

function connect({ address, channelOptions, own: callCredentials }: StreamGroupOptions): GrpcClient {
  return new GrpcClient(address, callCredentials?.channel ?? credentials.createInsecure(), {
    ...channelOptions,
    // Otherwise the groups would share a connection, and what stalls one would stall all.
    'grpc.use_local_subchannel_pool': 1,
    'grpc.service_config': JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
    // grpc-js would buffer what has been sent in order to retry it; calls are retried in grpc/client.ts, where they may
    // be.
    'grpc.enable_retries': 0,
    'grpc-node.flow_control_window': 1024 * 1024,
  });
}
