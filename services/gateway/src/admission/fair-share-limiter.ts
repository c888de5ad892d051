import { ActiveApps } from '@granary/shared/concurrency/active-apps';
import { overloaded } from '../errors/problem';

/** A request that takes longer waits for others and not for this process: it no longer counts. */
const lentMs = 250;
const sweepEveryMs = 25;
/** How much the last answer of an app counts in what its answers are expected to have. */
const lastAnswerWeight = 1 / 8;

export interface ShareLimits {
  /** Requests of one app that are worked on at a time while other apps are there. */
  share: number;
  /** Bytes that their answers may have together, going by the last ones; one request is worked on in any case. */
  answerBytes: number;
  /** Requests of one app that may wait for that; beyond, they are refused with OVERLOADED. */
  lineMax: number;
  /** How long they may wait. */
  timeoutMs: number;
}

interface App {
  id: string;
  /** Its requests inside that count, in the order in which they came. */
  inside: Set<Share>;
  line: Waiting[];
  /** What its last answers had in the mean. */
  meanAnswerBytes: number;
}

interface Waiting {
  sinceMs: number;
  enter: (share: Share) => void;
  refuse: () => void;
}

/** A place inside, to be left again. */
export class Share {
  constructor(
    readonly app: App,
    readonly sinceMs: number,
    private readonly left: (share: Share, answerBytes: number) => void,
  ) {}

  /** What the answer will probably have, going by the last ones of the app. */
  get expectedAnswerBytes(): number {
    return this.app.meanAnswerBytes;
  }

  /** `answerBytes`: of the answer that was sent. */
  leave(answerBytes: number): void {
    this.left(this, answerBytes);
  }
}

/**
 * What the apps of a process may take of it. An app that is alone may take everything. Where there are others, all of
 * them wait for whatever is under way at the moment, so each app has only so many short requests under way, fewer where
 * its answers are large: one that floods waits for itself.
 */
export class AppShares {
  private readonly apps = new Map<string, App>();
  private readonly presence = new ActiveApps();
  private waiting = 0;
  private sweeping: NodeJS.Timeout | undefined;
  private readonly left = (share: Share, answerBytes: number) => this.leave(share, answerBytes);

  constructor(
    private readonly limits: ShareLimits,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Throws OVERLOADED when too many of the app wait, and when one has waited too long. */
  enter(appId: string): Share | Promise<Share> {
    const nowMs = this.now();
    this.presence.see(appId, nowMs);
    let app = this.apps.get(appId);
    if (!app) {
      app = { id: appId, inside: new Set(), line: [], meanAnswerBytes: 0 };
      this.apps.set(appId, app);
    }
    if (app.line.length === 0 && this.mayEnter(app, nowMs)) return this.admit(app, nowMs);
    if (app.line.length >= this.limits.lineMax) throw overloaded();
    const { line } = app;
    return new Promise((resolve, reject) => {
      line.push({ sinceMs: nowMs, enter: resolve, refuse: () => reject(overloaded()) });
      this.waiting += 1;
      this.sweeping ??= setInterval(() => this.sweep(), sweepEveryMs);
    });
  }

  private mayEnter(app: App, nowMs: number): boolean {
    const share = this.shareOf(app);
    if (app.inside.size < share) return true;
    if (this.presence.isOnlyActive(app.id, nowMs)) return true;
    for (const share of app.inside) {
      if (nowMs - share.sinceMs <= lentMs) break;
      app.inside.delete(share);
    }
    return app.inside.size < share;
  }

  private shareOf({ meanAnswerBytes }: App): number {
    const { share, answerBytes } = this.limits;
    return meanAnswerBytes * share <= answerBytes ? share : Math.max(1, Math.floor(answerBytes / meanAnswerBytes));
  }

  private admit(app: App, nowMs: number): Share {
    const share = new Share(app, nowMs, this.left);
    app.inside.add(share);
    return share;
  }

  private leave(share: Share, answerBytes: number): void {
    const { app } = share;
    app.inside.delete(share);
    app.meanAnswerBytes += lastAnswerWeight * (answerBytes - app.meanAnswerBytes);
    if (app.line.length > 0) this.admitWaiting(app, this.now());
    // One that had been inside for long may leave when all others of its app have gone, and come anew.
    if (app.inside.size === 0 && app.line.length === 0 && this.apps.get(app.id) === app) this.apps.delete(app.id);
  }

  private admitWaiting(app: App, nowMs: number): void {
    while (app.line.length > 0 && this.mayEnter(app, nowMs)) {
      app.line.shift()!.enter(this.admit(app, nowMs));
      this.waiting -= 1;
    }
  }

  /** Lets those in whose place is free because somebody has been inside for long, and refuses who has waited too long. */
  private sweep(): void {
    const nowMs = this.now();
    for (const app of this.apps.values()) {
      this.admitWaiting(app, nowMs);
      while (app.line.length > 0 && nowMs - app.line[0]!.sinceMs > this.limits.timeoutMs) {
        app.line.shift()!.refuse();
        this.waiting -= 1;
      }
    }
    if (this.waiting > 0) return;
    clearInterval(this.sweeping);
    this.sweeping = undefined;
  }
}
