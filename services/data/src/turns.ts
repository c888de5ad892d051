import { ServiceError } from '@granary/shared/errors';
import type { CancelSignal } from '@granary/shared/grpc/cancellation';

export interface TurnLimits {
  /** Works at a time. */
  limit: number;
  /** Works of one app at a time. */
  appLimit: number;
  /** Works of one app that may wait; beyond, a caller is told to come back. */
  waitingMax: number;
}

interface Waiting {
  start: () => void;
}

interface App {
  running: number;
  waiting: Waiting[];
  /** The number of its last turn; 0: it has had none lately. */
  lastTurn: number;
}

/**
 * Shares among apps what they would else take from each other: so many works run at a time, so many of one app, and
 * when one ends the next is of the app whose turn was longest ago.
 */
export class Turns {
  /** Apps with anything running or waiting. */
  private readonly apps = new Map<string, App>();
  private running = 0;
  private turns = 0;

  constructor(private readonly limits: TurnLimits) {}

  /**
   * Runs a work when its turn comes. Throws TOO_MANY_REQUESTS when too many of the app wait, and CANCELLED for a caller
   * who has gone before his turn.
   */
  async run<T>(appId: string, signal: CancelSignal, work: () => Promise<T>): Promise<T> {
    if (signal.aborted) throw callerGone();
    const app = this.apps.get(appId) ?? { running: 0, waiting: [], lastTurn: 0 };
    this.apps.set(appId, app);
    if (this.mayRun(app)) this.begin(app);
    else await this.wait(appId, app, signal);
    try {
      return await work();
    } finally {
      this.running -= 1;
      app.running -= 1;
      this.forgetIdle(appId, app);
      this.next();
    }
  }

  private mayRun(app: App): boolean {
    return this.running < this.limits.limit && app.running < this.limits.appLimit;
  }

  private begin(app: App): void {
    this.running += 1;
    app.running += 1;
    app.lastTurn = ++this.turns;
  }

  private wait(appId: string, app: App, signal: CancelSignal): Promise<void> {
    if (app.waiting.length >= this.limits.waitingMax) {
      throw new ServiceError('RESOURCE_EXHAUSTED', 'TOO_MANY_REQUESTS', 'Too many reads of this app are waiting');
    }
    return new Promise((resolve, reject) => {
      const leave = () => {
        app.waiting.splice(app.waiting.indexOf(waiting), 1);
        this.forgetIdle(appId, app);
        reject(callerGone());
      };
      const waiting = {
        start: () => {
          signal.removeEventListener('abort', leave);
          resolve();
        },
      };
      app.waiting.push(waiting);
      signal.addEventListener('abort', leave, { once: true });
    });
  }

  private forgetIdle(appId: string, app: App): void {
    if (app.running === 0 && app.waiting.length === 0) this.apps.delete(appId);
  }

  private next(): void {
    let next: App | undefined;
    for (const app of this.apps.values()) {
      if (app.waiting.length === 0 || !this.mayRun(app)) continue;
      if (next === undefined || app.lastTurn < next.lastTurn) next = app;
    }
    if (next === undefined) return;
    this.begin(next);
    next.waiting.shift()!.start();
  }
}

const callerGone = () => new ServiceError('CANCELLED', 'CANCELLED', 'The caller has gone');
