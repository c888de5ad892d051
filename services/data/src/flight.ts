import type { Placed } from './batch';
import type { LockedHead } from './head';

/** Where a batch that is under way will leave the head, and what it writes. */
export interface Plan {
  head: LockedHead;
  placed: Placed;
}

/** A batch that is under way, for the one behind it, which may begin before this one has ended. */
export class Flight {
  private settlePlan!: (plan: Plan | undefined) => void;
  private settleEnd!: (asPlanned: boolean) => void;
  /** Undefined when nothing can be said before the end. */
  readonly plan = new Promise<Plan | undefined>((resolve) => (this.settlePlan = resolve));
  /** Whether it was committed as planned. */
  readonly end = new Promise<boolean>((resolve) => (this.settleEnd = resolve));

  isPlanned = false;

  /** The first plan holds: a batch that has to make another has ended otherwise than planned. */
  planned(plan: Plan): void {
    this.isPlanned = true;
    this.settlePlan(plan);
  }

  ended(asPlanned: boolean): void {
    this.settlePlan(undefined);
    this.settleEnd(asPlanned);
  }
}
