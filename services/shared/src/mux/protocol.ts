import type { MuxDefinition } from '../gen/granary/mux/v1/Mux';
import { loadService } from '../rpc/protos';

/**
 * The multiplexer sends many calls on one stream (see protos/mux/v1/mux.proto). This file is what both ends agree on.
 * The client's end is client.ts (calls, their order and the window) over channels.ts (streams and connections), the
 * server's is server.ts over session.ts (calls) and response-queue.ts. Only grpc/client.ts and grpc/server.ts use them.
 */
export const muxDefinition = loadService<MuxDefinition>('mux', 'Mux');

/**
 * Not a call: its request is a new token of the caller, sent before that of the stream expires. It has no answer.
 */
export const renewMethod = '/granary.mux.v1.Mux/Renew';

/** A larger request is sent in a unary call: to copy it into a message would cost more than the call. */
export const maxRequestBytes = 64 * 1024;

/**
 * Answers of any size are sent on the stream, because their size is not known in advance; larger ones in frames of this
 * size, round robin and with the small ones in between, so that none delays the others.
 */
export const frameBytes = 64 * 1024;

/** A message is sent once it has this size, which it exceeds by one item at most. */
export const messageBytes = 64 * 1024;

/**
 * The back-pressure of both ends: while more bytes than this have been handed to HTTP/2 and not been sent, nothing more
 * is handed over. It waits in our own queues, where it can still be cancelled and ordered.
 */
export const unsentBytesMax = 256 * 1024;

/** Calls of one stream under way. */
export const windowItems = 1_024;
/** Bytes of the requests of one stream under way. */
export const windowBytes = 8 * 1024 * 1024;

/** Approximate size of an item without its payload. */
export const itemOverheadBytes = 100;
