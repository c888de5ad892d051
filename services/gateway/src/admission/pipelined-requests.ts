import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/**
 * The bytes that each waiting request adds to Node's count of unsent answers: above a limit of its own, Node stops
 * reading from the connection.
 */
const pendingAnswerBytes = 64 * 1024;

interface Pipeline {
  /** Requests behind the first one of the connection that are processed, or whose answers wait behind others. */
  started: number;
  readonly waiting: Array<() => void>;
}

/** Node's own count of bytes that wait to be sent on a connection, which decides whether it is read from. */
interface CountsPendingData {
  _onPendingData?: (sizeBytes: number) => void;
}

/**
 * Bounds how many pipelined requests of one connection are processed concurrently. One packet may hold a thousand
 * requests, whose answers all wait until the first one is read. Requests beyond the bound wait, and nothing more is
 * read from their connection meanwhile.
 */
export class PipelinedRequests {
  private readonly pipelines = new WeakMap<Socket, Pipeline>();

  constructor(private readonly startedMax: number) {}

  /**
   * Admits a request behind the first one of its connection: calls `start` once it may be worked on; never, where the
   * connection is closed before.
   */
  admit(socket: Socket, response: ServerResponse, start: () => void): void {
    let pipeline = this.pipelines.get(socket);
    if (!pipeline) this.pipelines.set(socket, (pipeline = { started: 0, waiting: [] }));
    const socketPipeline = pipeline;
    const begin = () => {
      socketPipeline.started += 1;
      response.once('close', () => {
        socketPipeline.started -= 1;
        socketPipeline.waiting.shift()?.();
      });
      start();
    };
    if (socketPipeline.started < this.startedMax) return begin();
    const counter = response as CountsPendingData;
    counter._onPendingData?.(pendingAnswerBytes);
    socketPipeline.waiting.push(() => {
      if (socket.destroyed) return;
      counter._onPendingData?.(-pendingAnswerBytes);
      begin();
    });
  }
}
