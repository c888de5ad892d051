import type { Server } from 'node:http';
import type { Socket } from 'node:net';

/** Connections that were opened together do not end together: each lives up to so much of the age longer. */
const jitter = 0.1;

/**
 * Ends connections of clients at an age, so that clients which keep theirs find copies of the service that were added.
 */
export class ConnectionAges {
  /**
   * The time, by performance.now(), after which the next answer is the last one of its connection; -Infinity once that
   * answer is under way.
   */
  private readonly endsAtMs = new WeakMap<Socket, number>();

  constructor(private readonly ageMs: number) {}

  watch(server: Server): void {
    server.on('connection', (socket: Socket) => {
      this.endsAtMs.set(socket, performance.now() + this.ageMs * (1 + jitter * Math.random()));
    });
  }

  /**
   * Whether the answer to the next request has to be the last one of its connection. Requests behind that one are not
   * processed: their answers could not be sent.
   */
  next(socket: Socket): 'kept' | 'last' | 'none' {
    const endsAtMs = this.endsAtMs.get(socket);
    if (endsAtMs === undefined || performance.now() < endsAtMs) return 'kept';
    if (endsAtMs === -Infinity) return 'none';
    this.endsAtMs.set(socket, -Infinity);
    return 'last';
  }
}
