import { ServiceError } from '../errors';
import type { CancelSignal } from './cancellation';
import type { Presence } from './active-apps';

/** A work that takes longer no longer counts to its app's share, so that one of them does not hold up all others. */
const lentMs = 250;
/** No rest is longer: where works take long, for the database is busy, rests must not make them rare as well. */
const restMaxMs = 50;

export interface TurnLimits {
  /** Works at a time. */
  limit: number;
  /** Works of one app at a time. */
  appLimit: number;
  /** The same while other apps are there, of those works that have just begun. */
  share: number;
  /** Beside other apps a place rests for its own one after a work, so many times as long as the work took. */
  restFactor: number;
  /** Works of one app that may wait; beyond, a caller is told to come back. */
  waitingMax: number;
}

interface Waiting {
  start: (running: Running) => void;
}

/** A work under way. */
interface Running {
  sinceMs: number;
}

/** Those of an app that wait in one line. */
interface App {
  /** Of the line. */
  id: string;
  appId: string;
  /** In the order in which they began; those that rest are among them. */
  running: Set<Running>;
  waiting: Waiting[];
  /** The number of its last turn; 0: it has had none lately. */
  lastTurn: number;
}

/**
 * Shares among apps what they would else take from each other: so many works run at a time, so many of one app, and
 * when one ends the next is of the app whose turn was longest ago. Works take from others not only their places but
 * time of the processors, so an app has fewer at a time while others are there.
 */
export class Turns {
  /** Apps with anything running or waiting. */
  private readonly apps = new Map<string, App>();
  /** How many are running of each app, in all of its lines. */
  private readonly runningOfApp = new Map<string, number>();
  private running = 0;
  private turns = 0;
  private looking: NodeJS.Timeout | undefined;

  constructor(
    private readonly limits: TurnLimits,
    private readonly presence: Presence,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /**
   * Runs a work when its turn comes. Throws TOO_MANY_REQUESTS when too many of the app wait, and CANCELLED for a caller
   * who has gone before his turn. An app may have several lines, by their ids: they are served like those of different
   * apps, within the limit of the app.
   */
  async run<T>(appId: string, signal: CancelSignal, work: () => Promise<T>, line = appId): Promise<T> {
    if (signal.aborted) throw callerGone();
    const app = this.apps.get(line) ?? { id: line, appId, running: new Set(), waiting: [], lastTurn: 0 };
    this.apps.set(line, app);
    const running = this.mayRun(app) ? this.begin(app) : await this.wait(app, signal);
    try {
      return await work();
    } finally {
      this.running -= 1;
      this.rest(app, running);
      this.next();
    }
  }

  /** For the app the place is free after a rest, for the others it is at once. */
  private rest(app: App, running: Running): void {
    const nowMs = this.now();
    const restMs = Math.min((nowMs - running.sinceMs) * this.limits.restFactor, restMaxMs);
    if (restMs === 0 || this.presence.isAlone(app.appId, nowMs)) return this.leave(app, running);
    setTimeout(() => {
      this.leave(app, running);
      this.next();
    }, restMs);
  }

  private leave(app: App, running: Running): void {
    app.running.delete(running);
    const left = this.runningOfApp.get(app.appId)! - 1;
    if (left === 0) this.runningOfApp.delete(app.appId);
    else this.runningOfApp.set(app.appId, left);
    this.forgetIdle(app);
  }

  private mayRun({ appId, running }: App): boolean {
    const { limit, appLimit, share } = this.limits;
    if (this.running >= limit || (this.runningOfApp.get(appId) ?? 0) >= appLimit) return false;
    if (running.size < share) return true;
    const nowMs = this.now();
    if (this.presence.isAlone(appId, nowMs)) return true;
    let young = 0;
    for (const { sinceMs } of running) if (nowMs - sinceMs < lentMs) young += 1;
    return young < share;
  }

  private begin(app: App): Running {
    const running = { sinceMs: this.now() };
    this.running += 1;
    app.running.add(running);
    this.runningOfApp.set(app.appId, (this.runningOfApp.get(app.appId) ?? 0) + 1);
    app.lastTurn = ++this.turns;
    return running;
  }

  private wait(app: App, signal: CancelSignal): Promise<Running> {
    if (app.waiting.length >= this.limits.waitingMax) {
      throw new ServiceError('RESOURCE_EXHAUSTED', 'TOO_MANY_REQUESTS', 'Too many reads of this app are waiting');
    }
    return new Promise((resolve, reject) => {
      const leave = () => {
        app.waiting.splice(app.waiting.indexOf(waiting), 1);
        this.forgetIdle(app);
        reject(callerGone());
      };
      const waiting = {
        start: (running: Running) => {
          signal.removeEventListener('abort', leave);
          resolve(running);
        },
      };
      app.waiting.push(waiting);
      signal.addEventListener('abort', leave, { once: true });
      // That others have gone, or that a work takes long, nobody tells.
      this.looking ??= setInterval(() => this.look(), lentMs / 2);
    });
  }

  private look(): void {
    while (this.next());
    for (const { waiting } of this.apps.values()) if (waiting.length > 0) return;
    clearInterval(this.looking);
    this.looking = undefined;
  }

  private forgetIdle(app: App): void {
    if (app.running.size === 0 && app.waiting.length === 0) this.apps.delete(app.id);
  }

  /** Begins the next work; false when there is none that may begin. */
  private next(): boolean {
    let next: App | undefined;
    for (const app of this.apps.values()) {
      if (app.waiting.length === 0 || !this.mayRun(app)) continue;
      if (next === undefined || app.lastTurn < next.lastTurn) next = app;
    }
    if (next === undefined) return false;
    next.waiting.shift()!.start(this.begin(next));
    return true;
  }
}

const callerGone = () => new ServiceError('CANCELLED', 'CANCELLED', 'The caller has gone');
