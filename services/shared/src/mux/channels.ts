import { Client as GrpcClient, credentials, Metadata } from '@grpc/grpc-js';
import type { ServiceError as GrpcError } from '@grpc/grpc-js';
import { jittered } from '../concurrency/backoff';
import type { Batch } from '../gen/granary/mux/v1/Batch';
import { tokenHeader } from '../trust/token';
import type { CallCredentials } from '../trust/trust';
import { muxDefinition, windowItems } from './protocol';
import { Stream, type Channel, type StreamDuplex } from './stream';

export interface ChannelOptions {
  address: string;
  /** Of grpc-js. */
  channelOptions: Record<string, string | number>;
  count: number;
  /** Age at which a stream is replaced by a new one. */
  renewAfterMs: number;
  /** Absent: calls are neither signed nor encrypted. */
  own?: CallCredentials | undefined;
}

export interface ChannelEvents<Item> {
  received(stream: Stream<Item>, batch: Batch): void;
  /** The stream is gone; the calls in its `inFlight` get no answer. */
  broken(stream: Stream<Item>, error: GrpcError | undefined): void;
  /** There may be room for calls, or a stream to end: `maintain` is needed. */
  changed(): void;
}

/** How often a channel tries to reach an address of its own; in vain where there is only one. */
const movesMax = 2;
const avoidAfterBreakMs = 1_000;
const avoidAfterSilenceMs = 5_000;

const { path: streamPath, requestSerialize, responseDeserialize } = muxDefinition.Stream;

/** The connections to one address and the streams on them: opens, renews, drains and replaces streams. */
export class Channels<Item> {
  private readonly channels: Channel<Item>[];
  /** Also those that are draining. */
  private readonly open = new Set<Stream<Item>>();
  private renewals = 0;

  constructor(
    private readonly options: ChannelOptions,
    private readonly events: ChannelEvents<Item>,
  ) {
    this.channels = Array.from({ length: options.count }, () => ({
      connection: connect(options),
      moves: 0,
      avoidUntilMs: 0,
    }));
  }

  /** The stream with the fewest calls that has room, opened if need be. */
  leastLoaded(nowMs: number): Stream<Item> | undefined {
    const { channels } = this;
    let best: Channel<Item> | undefined;
    let bestLoad = Infinity;
    for (const channel of channels) {
      if (channel.stream && !channel.stream.hasRoom) continue;
      const load = (channel.stream?.inFlight.size ?? 0) + (channel.avoidUntilMs > nowMs ? windowItems : 0);
      if (load < bestLoad) [best, bestLoad] = [channel, load];
    }
    // Round robin among channels with the same load.
    channels.push(channels.shift()!);
    return best && (best.stream ?? this.openStream(best));
  }

  /** A call that was sent on this stream has timed out. If nothing has arrived since, the other channels are preferred. */
  timedOut({ lastReceivedMs, channel }: Stream<Item>, sentAtMs: number): void {
    if (lastReceivedMs < sentAtMs) channel.avoidUntilMs = Date.now() + avoidAfterSilenceMs;
  }

  /** Sends pending cancellations, and ends streams that have drained. */
  maintain(): void {
    for (const stream of this.open) stream.maintain();
  }

  /** Ends every stream without calls, and with the last stream the connections. */
  close(): void {
    for (const stream of this.open) stream.closeIfIdle();
    if (this.open.size === 0) for (const { connection } of this.channels) connection.close();
  }

  counts(): { streams: number; renewals: number } {
    return { streams: this.open.size, renewals: this.renewals };
  }

  private openStream(channel: Channel<Item>): Stream<Item> {
    const { own, renewAfterMs } = this.options;
    const metadata = new Metadata();
    if (own) metadata.set(tokenHeader, own.token(streamPath, ''));
    const duplex: StreamDuplex = channel.connection.makeBidiStreamRequest(
      streamPath,
      requestSerialize,
      responseDeserialize,
      metadata,
    );
    const stream = new Stream(channel, duplex, own, () => this.events.changed());
    const renew = () => {
      channel.moves = 0;
      this.drain(stream);
    };
    stream.renewTimer = setTimeout(renew, jittered(renewAfterMs)).unref();
    duplex.on('metadata', () => this.connected(stream, duplex.getPeer()));
    duplex.on('data', (batch: Batch) => this.receive(stream, batch));
    duplex.on('end', () => this.broken(stream));
    duplex.on('error', (error: GrpcError) => this.broken(stream, error));
    channel.stream = stream;
    this.open.add(stream);
    return stream;
  }

  private receive(stream: Stream<Item>, batch: Batch): void {
    stream.lastReceivedMs = Date.now();
    stream.channel.avoidUntilMs = 0;
    this.events.received(stream, batch);
    if (batch.goingAway) this.drain(stream);
  }

  /** Two streams to one of several addresses would leave another address idle, so the second one is replaced. */
  private connected(stream: Stream<Item>, peer: string): void {
    stream.peer = peer;
    const { channel } = stream;
    const isTaken = this.channels.some((other) => other !== channel && other.stream?.peer === peer);
    if (channel.moves >= movesMax || !isTaken) return;
    channel.moves++;
    this.drain(stream);
  }

  /** From here on nothing but cancellations is sent on the stream. */
  private drain(stream: Stream<Item>): void {
    if (stream.isDraining || !this.open.has(stream)) return;
    stream.isDraining = true;
    clearTimeout(stream.renewTimer);
    delete stream.channel.stream;
    this.renewals++;
    this.events.changed();
  }

  private broken(stream: Stream<Item>, error?: GrpcError): void {
    if (!this.open.delete(stream)) return;
    clearTimeout(stream.renewTimer);
    if (!stream.isDraining) delete stream.channel.stream;
    if (error) stream.channel.avoidUntilMs = Date.now() + avoidAfterBreakMs;
    this.events.broken(stream, error);
    this.events.changed();
  }
}

function connect({ address, channelOptions, own }: ChannelOptions): GrpcClient {
  return new GrpcClient(address, own?.channel ?? credentials.createInsecure(), {
    ...channelOptions,
    // Otherwise the channels would share a connection, and what stalls one would stall all.
    'grpc.use_local_subchannel_pool': 1,
    'grpc.service_config': JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
    // grpc-js would buffer what has been sent in order to retry it; calls are retried in grpc/client.ts, where they may be.
    'grpc.enable_retries': 0,
    'grpc-node.flow_control_window': 1024 * 1024,
  });
}
