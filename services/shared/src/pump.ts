import type { ServerResponse } from 'node:http';
import type { Readable, Writable } from 'node:stream';

/** What may wait to be written to a slow receiver, per transfer. */
const bufferBytes = 256 * 1024;

/**
 * Moves bytes as `pipe` does, at the pace of the slower side, for two thirds of its processor time: a socket is read
 * 64 KiB at a time and several times in one turn of the event loop, and what came in one turn is written by one system
 * call. What it returns stops it; what was not read by then stays unread.
 */
export function pump(source: Readable, sink: Writable): () => void {
  let turn: NodeJS.Immediate | undefined;
  const flush = () => {
    if (!turn) return;
    clearImmediate(turn);
    turn = undefined;
    sink.uncork();
  };
  const onData = (chunk: Buffer) => {
    if (!turn) {
      sink.cork();
      turn = setImmediate(flush);
    }
    // The sink asks for a pause at its own mark, which a single chunk reaches.
    if (!sink.write(chunk) && sink.writableLength >= bufferBytes) source.pause();
  };
  const onDrain = () => void source.resume();
  const onEnd = () => {
    flush();
    sink.end();
  };
  source.on('data', onData).on('end', onEnd);
  sink.on('drain', onDrain);
  return () => {
    source.off('data', onData).off('end', onEnd).pause();
    sink.off('drain', onDrain);
    flush();
  };
}

/**
 * Passes on the body of an answer whose head is known, and resolves when that has ended one way or the other. What goes
 * wrong can only end the connection; when that ends first, the source is destroyed.
 */
export function flow(source: Readable, response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const ended = () => {
      if (!source.readableEnded) source.destroy();
      resolve();
    };
    response.once('close', ended).once('finish', ended);
    source.once('error', () => response.destroy());
    source.once('close', () => {
      if (!source.readableEnded) response.destroy();
    });
    pump(source, response);
    if (response.destroyed) ended();
  });
}
