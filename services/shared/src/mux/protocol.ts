import type { MuxDefinition } from '../gen/granary/mux/v1/Mux';
import { loadService } from '../rpc/protos';
import { decodeBatch, encodeBatch, type OutgoingBatch } from './codec';

const { Stream } = loadService<MuxDefinition>('mux', 'Mux');

/**
 * The stream that carries many calls (see protos/mux/v1/mux.proto): what both of its ends agree on. The caller's
 * end is stream-client.ts (calls, their order and the window) over stream-lanes.ts (streams and connections), the
 * service's is stream-server.ts; nobody but client.ts and server.ts knows that there is one.
 */
export const muxDefinition = {
  Stream: {
    ...Stream,
    // The client of grpc-js frames a message in a later turn, so each has a buffer of its own.
    requestSerialize: (batch: OutgoingBatch) => encodeBatch(batch),
    requestDeserialize: decodeBatch,
    // Its server copies a message into its frame before it calls anything else (`serializeMessage`).
    responseSerialize: (batch: OutgoingBatch) => encodeBatch(batch, scratch),
    responseDeserialize: decodeBatch,
  },
};

/**
 * An item for this method is no call: its request is the token of the caller anew, before the one that the stream was
 * opened with runs out. Nothing answers it.
 */
export const renewMethod = '/granary.mux.v1.Mux/Renew';

/** A larger request is a unary call of its own: copying it into a message would cost more than the call. */
export const maxRequestBytes = 64 * 1024;

/**
 * An answer of any size rides on the stream, for its size is known only once it is made; but in pieces of this size,
 * one for each large answer in turn and the small ones between them, so that none holds up the others.
 */
export const frameBytes = 64 * 1024;

/** A message is closed once it holds this much; it exceeds it by one item at most. */
export const messageBytes = 64 * 1024;

/**
 * What is handed to HTTP/2 and has not left. Above this nothing more is handed over, so what waits does so where it can
 * still be cancelled and put in order: this is the back-pressure of both ends.
 */
export const unsentBytesMax = 256 * 1024;

/** Calls of one stream under way. */
export const windowItems = 1_024;
/** Bytes of the requests of one stream under way. */
export const windowBytes = 8 * 1024 * 1024;

/** Holds a full message of pieces with room to spare: one closed at `messageBytes`, its last item and a large piece. */
const scratchBytes = 256 * 1024;
let scratchBuffer: Buffer | undefined;

/** The same buffer each time, for what is copied out of it at once; a message of unusual size has one of its own. */
function scratch(size: number): Buffer {
  if (size > scratchBytes) return Buffer.allocUnsafe(size);
  return (scratchBuffer ??= Buffer.allocUnsafeSlow(scratchBytes));
}

/** What an item costs beside its payload, roughly. */
export const itemOverheadBytes = 100;
