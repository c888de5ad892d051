import { ActiveApps } from '@granary/shared/concurrency/active-apps';
import { FairScheduler, type Slot } from '@granary/shared/concurrency/fair-scheduler';
import { overloaded } from '../errors/problem';

/** Weight of the last answer of an app in the mean size of its answers. */
const lastAnswerWeight = 1 / 8;

export interface FairShareOptions {
  /** Requests of one app that are processed at a time while other apps are active. */
  fairShare: number;
  /** Bytes that their answers may have together, estimated from the last ones; one request is processed in any case. */
  answerBytes: number;
  /** Requests of one app that may wait; beyond, they are refused with OVERLOADED. */
  queueMax: number;
  /** How long they may wait. */
  timeoutMs: number;
}

/** The answers of an app that has requests under way. */
interface AppAnswers {
  /** Requests that are processed or wait. */
  requestCount: number;
  meanBytes: number;
}

/**
 * Limits how much of the process one app takes. An app that is the only active one may use all of it. While others are
 * active each app has a fair share: a few short requests at a time, fewer if its answers are large. A flood of requests
 * then delays the app that sends it, and no other.
 */
export class FairShareLimiter {
  private readonly activeApps = new ActiveApps();
  private readonly scheduler: FairScheduler;
  private readonly answersByApp = new Map<string, AppAnswers>();

  constructor(
    private readonly options: FairShareOptions,
    private readonly now: () => number = () => performance.now(),
  ) {
    const { queueMax, timeoutMs } = options;
    this.scheduler = new FairScheduler(
      {
        contention: { activeApps: this.activeApps, fairShare: (appId) => this.fairShareOf(appId) },
        queueMaxPerFlow: queueMax,
        timeoutMs,
        refusal: overloaded,
      },
      now,
    );
  }

  /** A slot, or a promise of one. Each must be released. Rejects with OVERLOADED when the queue is full or the time is up. */
  acquire(appId: string): Slot | Promise<Slot> {
    this.activeApps.see(appId, this.now());
    const answers = this.answersByApp.get(appId);
    if (answers) answers.requestCount += 1;
    else this.answersByApp.set(appId, { requestCount: 1, meanBytes: 0 });
    const slot = this.scheduler.acquire(appId);
    if (slot instanceof Promise) slot.catch(() => this.forgetRequest(appId));
    return slot;
  }

  /** The probable size of the next answer to an app with a request under way. */
  expectedAnswerBytes(appId: string): number {
    return this.answersByApp.get(appId)!.meanBytes;
  }

  /** `answerBytes`: the size of the answer that was sent. */
  release(appId: string, slot: Slot, answerBytes: number): void {
    const answers = this.answersByApp.get(appId)!;
    answers.meanBytes += lastAnswerWeight * (answerBytes - answers.meanBytes);
    slot.release();
    this.forgetRequest(appId);
  }

  private fairShareOf(appId: string): number {
    const { fairShare, answerBytes } = this.options;
    const { meanBytes } = this.answersByApp.get(appId)!;
    return meanBytes * fairShare <= answerBytes ? fairShare : Math.max(1, Math.floor(answerBytes / meanBytes));
  }

  private forgetRequest(appId: string): void {
    const answers = this.answersByApp.get(appId)!;
    answers.requestCount -= 1;
    if (answers.requestCount === 0) this.answersByApp.delete(appId);
  }
}
