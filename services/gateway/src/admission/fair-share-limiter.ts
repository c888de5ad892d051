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
  meanBytes: number;
}

/** The place of one request among those that are processed. */
export type AppSlot = Slot<AppAnswers>;

/**
 * Limits how much of the process one app takes. An app that is the only active one may use all of it. While others are
 * active each app has a fair share: a few short requests at a time, fewer if its answers are large. A flood of requests
 * then delays the app that sends it, and no other.
 */
export class FairShareLimiter {
  private readonly activeApps = new ActiveApps();
  private readonly scheduler: FairScheduler<AppAnswers>;

  constructor(
    private readonly options: FairShareOptions,
    private readonly now: () => number = () => performance.now(),
  ) {
    const { queueMax, timeoutMs } = options;
    this.scheduler = new FairScheduler(
      {
        contention: { activeApps: this.activeApps, fairShare: (answers) => this.fairShareOf(answers) },
        queueMaxPerFlow: queueMax,
        timeoutMs,
        refusal: overloaded,
        newState: () => ({ meanBytes: 0 }),
      },
      now,
    );
  }

  /**
   * A slot, or a promise of one. Each must be released. Rejects with OVERLOADED when the queue is full or the time is
   * up.
   */
  acquire(appId: string): AppSlot | Promise<AppSlot> {
    this.activeApps.see(appId, this.now());
    return this.scheduler.acquire(appId);
  }

  /** The probable size of the answer to a request. */
  expectedAnswerBytes({ flow }: AppSlot): number {
    return flow.state.meanBytes;
  }

  /** `answerBytes`: the size of the answer that was sent. */
  release(slot: AppSlot, answerBytes: number): void {
    const answers = slot.flow.state;
    answers.meanBytes += lastAnswerWeight * (answerBytes - answers.meanBytes);
    slot.release();
  }

  private fairShareOf({ meanBytes }: AppAnswers): number {
    const { fairShare, answerBytes } = this.options;
    return meanBytes * fairShare <= answerBytes ? fairShare : Math.max(1, Math.floor(answerBytes / meanBytes));
  }
}
