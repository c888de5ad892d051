import { ServiceError } from '../errors';
import type { ActiveApps } from './active-apps';
import type { CancelSignal } from './cancellation';
import { startDeadline, cancelDeadline, type Deadline } from './deadlines';

/** Default of `longRunningAfterMs`. */
const longRunningMs = 250;
/** Default of `cooldownMaxMs`. */
const defaultCooldownMaxMs = 50;
/**
 * How often waiting tasks are checked for what no event announces: a task became long-running, or other apps inactive.
 */
const recheckEveryMs = 25;

export interface FairSchedulerOptions<State = undefined> {
  /** Tasks that run at a time. Default: no limit. */
  concurrency?: number;
  /** Tasks of one key that run at a time. Default: no limit. */
  concurrencyPerKey?: number;
  /** Limits that apply only while keys other than that of a task are active. */
  contention?: ContentionLimits<State>;
  /** Tasks that may wait, in total and of one flow. Default: no limit. */
  queueMax?: number;
  queueMaxPerFlow?: number;
  /** How long a task may wait. Default: until its signal aborts. */
  timeoutMs?: number;
  /** The error of a task that finds the queue full, or has waited too long. */
  refusal: () => Error;
  /** Creates the state that a flow keeps while it has tasks, in `slot.flow.state`. */
  newState?: () => State;
}

export interface ContentionLimits<State = undefined> {
  /** Decides which keys are active. Its owner records the requests in it. */
  activeApps: ActiveApps;
  /**
   * Tasks of one flow that run at a time, without the long-running ones; a function is called for each decision.
   * Default: no limit.
   */
  fairShare?: number | ((state: State) => number);
  /**
   * A task that runs longer no longer counts in the fair share, so that it does not block the other tasks of its flow.
   */
  longRunningAfterMs?: number;
  /** After a task its slot is unavailable to its own key for this many times the duration of the task. Default: 0. */
  cooldownFactor?: number;
  cooldownMaxMs?: number;
}

export interface TaskOptions {
  /** A task whose caller has gone is removed from the queue; a task that runs is not affected. */
  signal?: CancelSignal;
  /**
   * The unit of fairness. Default: the key. Flows of one key are served like different keys, within the limits of the
   * key.
   */
  flow?: string;
}

/** The tasks of a flow that run, cool down or wait. */
interface Flow<State> {
  readonly id: string;
  readonly key: string;
  readonly state: State;
  /** Tasks that run or cool down. */
  slotCount: number;
  /** The slots of tasks that count in the fair share, in the order in which they started. */
  readonly counted: Set<Slot<State>>;
  readonly waiters: Set<Waiter<State>>;
  /** The number of the last start, by which flows are ordered. */
  lastStart: number;
}

interface Waiter<State> {
  readonly flow: Flow<State>;
  readonly resolve: (slot: Slot<State>) => void;
  readonly leave: (() => void) | undefined;
  readonly signal: CancelSignal | undefined;
  timeout: Deadline | undefined;
}

/** The right of one task to run. */
export class Slot<State = undefined> {
  constructor(
    private readonly scheduler: SlotOwner<State>,
    readonly flow: Flow<State>,
    readonly startedAtMs: number,
  ) {}

  /** Must be called once, when the task has ended. */
  release(): void {
    this.scheduler.release(this);
  }
}

interface SlotOwner<State> {
  release(slot: Slot<State>): void;
}

/**
 * Shares the capacity of a process, or of something behind it, among keys such as applications or addresses. When a
 * slot becomes free it goes to the flow that was served least recently; within a flow tasks start in the order of
 * arrival. A flow that was not served lately counts as served `concurrency` starts ago, so a constant arrival of new
 * keys delays a waiting flow by no more than that. While several keys are active, `contention` limits each of them
 * further: to a fair share of the slots, and by a cooldown after each task, which leaves processors to others.
 */
export class FairScheduler<State = undefined> implements SlotOwner<State> {
  /** Flows with tasks that run, cool down or wait. */
  private readonly flows = new Map<string, Flow<State>>();
  /** The flows with tasks that wait. */
  private readonly waitingFlows = new Set<Flow<State>>();
  /** Tasks that run or cool down; kept only if there is a limit. */
  private readonly slotsByKey = new Map<string, number>();
  private readonly concurrency: number;
  private readonly concurrencyPerKey: number;
  private running = 0;
  private waiting = 0;
  private starts = 0;
  private recheckTimer: NodeJS.Timeout | undefined;

  constructor(
    private readonly options: FairSchedulerOptions<State>,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.concurrency = options.concurrency ?? Infinity;
    this.concurrencyPerKey = options.concurrencyPerKey ?? Infinity;
  }

  /** Runs a task in a slot. Rejects as `acquire` and as the task do. */
  async run<T>(key: string, task: () => Promise<T>, options?: TaskOptions): Promise<T> {
    const acquired = this.acquire(key, options);
    const slot = acquired instanceof Slot ? acquired : await acquired;
    try {
      return await task();
    } finally {
      slot.release();
    }
  }

  /**
   * A slot if the task may start at once, else a promise of one. Rejects with `refusal` when the queue is full or the
   * time is up, and with CANCELLED when the signal aborts first.
   */
  acquire(key: string, { signal, flow: id = key }: TaskOptions = {}): Slot<State> | Promise<Slot<State>> {
    if (signal?.aborted) return Promise.reject(callerGone());
    const flow = this.flows.get(id);
    // Tasks of one flow start in the order of arrival.
    if (flow && flow.waiters.size > 0) return this.enqueue(flow, signal);
    const current = flow ?? this.newFlow(id, key);
    return this.mayStart(current) ? this.start(current) : this.enqueue(current, signal);
  }

  counts(): { running: number; waiting: number } {
    return { running: this.running, waiting: this.waiting };
  }

  release(slot: Slot<State>): void {
    this.running -= 1;
    const { contention } = this.options;
    const cooldownMs = contention?.cooldownFactor ? this.cooldownOf(slot, contention) : 0;
    if (cooldownMs > 0) {
      setTimeout(() => {
        this.freeSlot(slot);
        this.startQueued();
      }, cooldownMs);
    } else {
      this.freeSlot(slot);
    }
    this.startQueued();
  }

  private cooldownOf({ flow, startedAtMs }: Slot<State>, contention: ContentionLimits<State>): number {
    const { activeApps, cooldownFactor = 0, cooldownMaxMs = defaultCooldownMaxMs } = contention;
    const nowMs = this.now();
    if (activeApps.isOnlyActive(flow.key, nowMs)) return 0;
    return Math.min((nowMs - startedAtMs) * cooldownFactor, cooldownMaxMs);
  }

  private newFlow(id: string, key: string): Flow<State> {
    const lastStart = this.starts - this.concurrency;
    const state = this.options.newState?.() as State;
    const flow: Flow<State> = { id, key, state, slotCount: 0, counted: new Set(), waiters: new Set(), lastStart };
    this.flows.set(id, flow);
    return flow;
  }

  private mayStart(flow: Flow<State>): boolean {
    if (this.running >= this.concurrency) return false;
    if (this.concurrencyPerKey !== Infinity && (this.slotsByKey.get(flow.key) ?? 0) >= this.concurrencyPerKey)
      return false;
    const { contention } = this.options;
    return contention?.fairShare === undefined || this.isWithinShare(flow, contention, contention.fairShare);
  }

  private isWithinShare(
    flow: Flow<State>,
    { activeApps, longRunningAfterMs = longRunningMs }: ContentionLimits<State>,
    fairShare: number | ((state: State) => number),
  ): boolean {
    const share = typeof fairShare === 'number' ? fairShare : fairShare(flow.state);
    if (flow.counted.size < share) return true;
    const nowMs = this.now();
    if (activeApps.isOnlyActive(flow.key, nowMs)) return true;
    for (const slot of flow.counted) {
      if (nowMs - slot.startedAtMs < longRunningAfterMs) break;
      flow.counted.delete(slot);
    }
    return flow.counted.size < share;
  }

  private start(flow: Flow<State>): Slot<State> {
    const slot = new Slot(this, flow, this.now());
    this.running += 1;
    flow.slotCount += 1;
    flow.counted.add(slot);
    flow.lastStart = ++this.starts;
    if (this.concurrencyPerKey !== Infinity) {
      this.slotsByKey.set(flow.key, (this.slotsByKey.get(flow.key) ?? 0) + 1);
    }
    return slot;
  }

  private freeSlot(slot: Slot<State>): void {
    const { flow } = slot;
    flow.slotCount -= 1;
    flow.counted.delete(slot);
    if (this.concurrencyPerKey !== Infinity) {
      const left = this.slotsByKey.get(flow.key)! - 1;
      if (left === 0) this.slotsByKey.delete(flow.key);
      else this.slotsByKey.set(flow.key, left);
    }
    this.forgetIdle(flow);
  }

  private forgetIdle(flow: Flow<State>): void {
    if (flow.slotCount === 0 && flow.waiters.size === 0) this.flows.delete(flow.id);
  }

  private enqueue(flow: Flow<State>, signal: CancelSignal | undefined): Promise<Slot<State>> {
    const { queueMax = Infinity, queueMaxPerFlow = Infinity, timeoutMs, contention, refusal } = this.options;
    if (this.waiting >= queueMax || flow.waiters.size >= queueMaxPerFlow) {
      this.forgetIdle(flow);
      return Promise.reject(refusal());
    }
    return new Promise((resolve, reject) => {
      const end = (error: Error) => {
        this.dequeue(waiter);
        this.forgetIdle(flow);
        reject(error);
      };
      const leave = signal && (() => end(callerGone()));
      const waiter: Waiter<State> = { flow, resolve, leave, signal, timeout: undefined };
      if (timeoutMs !== undefined) waiter.timeout = startDeadline(timeoutMs, () => end(refusal()));
      if (leave) signal.addEventListener('abort', leave, { once: true });
      flow.waiters.add(waiter);
      this.waitingFlows.add(flow);
      this.waiting += 1;
      if (contention) this.recheckTimer ??= setInterval(() => this.recheck(), recheckEveryMs);
    });
  }

  private dequeue(waiter: Waiter<State>): void {
    const { flow, timeout, signal, leave } = waiter;
    flow.waiters.delete(waiter);
    if (flow.waiters.size === 0) this.waitingFlows.delete(flow);
    this.waiting -= 1;
    if (timeout) cancelDeadline(timeout);
    if (leave) signal!.removeEventListener('abort', leave);
  }

  private recheck(): void {
    this.startQueued();
    if (this.waiting > 0) return;
    clearInterval(this.recheckTimer);
    this.recheckTimer = undefined;
  }

  /** Starts waiting tasks as long as one may start. */
  private startQueued(): void {
    while (this.waiting > 0 && this.running < this.concurrency) {
      let next: Flow<State> | undefined;
      for (const flow of this.waitingFlows) {
        if ((next === undefined || flow.lastStart < next.lastStart) && this.mayStart(flow)) next = flow;
      }
      if (next === undefined) return;
      const waiter = next.waiters.values().next().value!;
      this.dequeue(waiter);
      waiter.resolve(this.start(next));
    }
  }
}

const callerGone = () => new ServiceError('CANCELLED', 'CANCELLED', 'The caller has gone');
