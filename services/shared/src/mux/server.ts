import type { handleBidiStreamingCall } from '@grpc/grpc-js';
import type { ServiceError } from '../errors';
import type { Batch, BatchInput } from '../gen/granary/mux/v1/Batch';
import type { Logger } from '../logger';
import { tokenOf, type Authorization } from '../rpc/authorization';
import { toStatus } from '../rpc/status';
import { openSessionCredentials, type SessionCredentials } from './credentials';
import { MuxSession, type MuxDuplex, type MuxMethod } from './session';

/** Counts of what a server has under way on its streams. */
export interface MuxServerCounts {
  streams: number;
  calls: number;
  answerBytes: number;
}

/** The server's end of all streams: one session each. */
export class MuxServer {
  /** The handlers to pass to `Server.addService`. */
  readonly handlers: { Stream: handleBidiStreamingCall<Batch, BatchInput> };
  private readonly sessions = new Set<MuxSession>();
  private isLeaving = false;

  /** `maxAnswerBytes`: a larger answer becomes RESULT_TOO_LARGE, as in gRPC. */
  constructor(
    private readonly methods: ReadonlyMap<string, MuxMethod>,
    private readonly maxAnswerBytes: number,
    private readonly log: Logger,
    private readonly authorization?: Authorization,
  ) {
    this.handlers = { Stream: (duplex: MuxDuplex) => this.open(duplex) };
  }

  counts(): MuxServerCounts {
    const counts = { streams: this.sessions.size, calls: 0, answerBytes: 0 };
    for (const session of this.sessions) {
      const { calls, answerBytes } = session.counts();
      counts.calls += calls;
      counts.answerBytes += answerBytes;
    }
    return counts;
  }

  /** Asks every client to send its next calls elsewhere; those that have arrived are answered. */
  goAway(): void {
    this.isLeaving = true;
    for (const session of this.sessions) session.goAway();
  }

  private open(duplex: MuxDuplex): void {
    const { methods, maxAnswerBytes, log, authorization } = this;
    let credentials: SessionCredentials<MuxMethod> | undefined;
    try {
      credentials = authorization && openSessionCredentials(authorization, tokenOf(duplex.metadata), methods);
    } catch (error) {
      duplex.emit('error', toStatus(error as ServiceError));
      return;
    }
    const onClosed = () => this.sessions.delete(session);
    const session = new MuxSession(duplex, { methods, maxAnswerBytes, log, credentials, onClosed });
    this.sessions.add(session);
    if (this.isLeaving) session.goAway();
  }
}
