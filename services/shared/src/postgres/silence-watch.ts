import type { Logger } from '../logger';
import type { PreparingClient } from './pool-client';

/** How long a connection may be silent beyond the statement timeout while a statement is under way. */
export const silenceGraceMs = 5_000;
const periodsOfGrace = 4;

export interface SilenceWatchOptions {
  statementTimeoutMs: number;
  graceMs: number;
  log: Logger;
}

/**
 * Drops the connections of a pool whose server does not answer any more (a host that has vanished, a process that is
 * stopped): Postgres itself cannot time a statement out then, and the pool would wait for ever. Nothing is done per
 * statement: the connections are examined periodically, by the bytes that they have received.
 */
export class SilenceWatch {
  readonly #connections = new Set<PreparingClient>();
  readonly #options: SilenceWatchOptions;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: SilenceWatchOptions) {
    this.#options = options;
  }

  add(connection: PreparingClient): void {
    this.#connections.add(connection);
    this.#timer ??= setInterval(() => this.#examine(), this.#periodMs).unref();
  }

  delete(connection: PreparingClient): void {
    this.#connections.delete(connection);
    if (this.#connections.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  get #periodMs(): number {
    return this.#options.graceMs / periodsOfGrace;
  }

  #examine(): void {
    const { statementTimeoutMs, graceMs, log } = this.#options;
    for (const connection of this.#connections) {
      if (!connection.isSilent(this.#periodMs, statementTimeoutMs, graceMs)) continue;
      this.delete(connection);
      log.warn('a database connection has not answered for too long and is dropped');
      connection.destroy(new Error('Connection terminated: Postgres has not answered for too long'));
    }
  }
}
