import type { ServerResponse } from 'node:http';
import type { Readable, Writable } from 'node:stream';

/** The bytes that may wait to be written to a slow receiver, per transfer. */
const bufferBytes = 256 * 1024;

/**
 * Transfers that pass something on in one turn of the event loop while more of them could: what else the process does
 * is then held up for a millisecond, however many there are.
 */
const transfersPerTurn = 8;

/** Transfers of this process whose receiver takes more. */
let movingCount = 0;
const paced: Array<() => void> = [];
let pacing: NodeJS.Immediate | undefined;

function resumeInTurn(resume: () => void): void {
  paced.push(resume);
  pacing ??= setImmediate(resumeSome);
}

function resumeSome(): void {
  for (const resume of paced.splice(0, transfersPerTurn)) resume();
  pacing = paced.length > 0 ? setImmediate(resumeSome) : undefined;
}

/** Observes a transfer: its bytes, and which side it waits for. */
export interface PumpObserver {
  moved(bytes: number): void;
  /** The receiver takes no more for now. */
  blocked(): void;
  /** The receiver has taken everything that there was. */
  unblocked(): void;
  /** All of the source has been read. */
  ended(): void;
}

/**
 * Moves bytes as `pipe` does, at the pace of the slower side, for two thirds of its processor time: a socket is read
 * 64 KiB at a time and several times in one turn of the event loop, and what came in one turn is written by one system
 * call. What it returns stops it; what was not read by then stays unread.
 */
export function pump(source: Readable, sink: Writable, observer?: PumpObserver): () => void {
  let turn: NodeJS.Immediate | undefined;
  let isMoving = false;
  let isOver = false;
  const setMoving = (moving: boolean) => {
    if (isMoving !== moving) movingCount += moving ? 1 : -1;
    isMoving = moving;
  };
  const resume = () => {
    if (isMoving && !isOver) source.resume();
  };
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
    observer?.moved(chunk.length);
    // The sink asks for a pause at its own mark, which a single chunk reaches.
    if (!sink.write(chunk) && sink.writableLength >= bufferBytes) {
      setMoving(false);
      source.pause();
      observer?.blocked();
    } else if (movingCount > transfersPerTurn) {
      source.pause();
      resumeInTurn(resume);
    }
  };
  const onDrain = () => {
    if (isMoving || isOver) return;
    setMoving(true);
    source.resume();
    observer?.unblocked();
  };
  const onEnd = () => {
    over();
    flush();
    sink.end();
    observer?.ended();
  };
  const over = () => {
    isOver = true;
    setMoving(false);
  };
  setMoving(true);
  source.on('data', onData).on('end', onEnd);
  sink.on('drain', onDrain);
  return () => {
    over();
    source.off('data', onData).off('end', onEnd).pause();
    sink.off('drain', onDrain);
    flush();
  };
}

/**
 * Passes on the body of an answer whose head is known, and resolves when that has ended one way or the other. What goes
 * wrong can only end the connection; when that ends first, the source is destroyed.
 *
 * `restAfter` opens what follows the bytes that were passed on, where the source breaks off; it is called once.
 */
export function flow(
  first: Readable,
  response: ServerResponse,
  observer?: PumpObserver,
  restAfter?: (movedBytes: number) => Promise<Readable>,
): Promise<void> {
  let movedBytes = 0;
  if (restAfter) first.on('data', (chunk: Buffer) => (movedBytes += chunk.length));
  const passOn = (source: Readable): Promise<void> =>
    new Promise((resolve) => {
      const stop = pump(source, response, observer);
      const ended = () => {
        stop();
        response.off('close', ended).off('finish', ended);
        if (!source.readableEnded) source.destroy();
        resolve();
      };
      response.once('close', ended).once('finish', ended);
      // A source closes after its errors too.
      source.on('error', () => {});
      source.once('close', () => {
        if (!source.readableEnded) ended();
      });
      if (response.destroyed || source.destroyed) ended();
    });
  const passOnAll = async (): Promise<void> => {
    await passOn(first);
    if (first.readableEnded || response.destroyed) return;
    if (restAfter) await passOn(await restAfter(movedBytes));
    if (!response.writableEnded) response.destroy();
  };
  return passOnAll().catch(() => void response.destroy());
}
