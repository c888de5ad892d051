import { KeyedBudget, type BudgetLease } from '@granary/shared/concurrency/keyed-budget';
import { startDeadline, cancelDeadline, type Deadline } from '@granary/shared/concurrency/deadlines';
import { overloaded } from '../errors/problem';
import type { ClientBudget, ClientKeys } from './client-budget';

export interface TransferSlotLimits {
  /** Transfers at once; as many again may wait. */
  total: number;
  /** Transfers at once of one application, and of one client address. */
  perApp: number;
  perAddress: number;
  /** How long a transfer may wait for a slot. */
  queueTimeoutMs: number;
}

/** A transfer that has been idle for this long may be evicted when another one needs its slot. */
const evictAfterIdleMs = 5_000;

interface Queued {
  slot: TransferSlot;
  turn: BudgetLease;
  deadline: Deadline;
  admit: (slot: TransferSlot) => void;
}

/** The slot of one transfer. */
export class TransferSlot {
  constructor(
    private readonly lease: BudgetLease,
    private readonly left: () => void,
  ) {}

  tryTake(): boolean {
    return this.lease.tryTake(1);
  }

  /** Records progress. */
  touch(): void {
    this.lease.touch();
  }

  /** Exempts the transfer from eviction. */
  pin(): void {
    this.lease.pin();
  }

  /** May be called again, and after an eviction. */
  leave(): void {
    this.lease.release();
    this.left();
  }
}

/**
 * Slots of transfers in one direction, bounded in total, by application and by client address. A transfer that finds
 * none waits, for a bounded time; it does not block transfers of other clients that are within their limits.
 */
export class TransferSlots {
  private readonly slots: ClientBudget;
  private readonly turns: ClientBudget;
  private readonly queue = new Set<Queued>();

  constructor(private readonly limits: TransferSlotLimits) {
    const { total, perApp, perAddress } = limits;
    this.slots = new KeyedBudget({ total, perKey: { app: perApp, address: perAddress }, evictAfterIdleMs });
    const half = Math.ceil(total / 2);
    this.turns = new KeyedBudget({ total, perKey: { app: half, address: half } });
  }

  /**
   * `onEvict` is called when the slot is needed by others and nothing has moved for a while. Rejects with OVERLOADED.
   */
  async enter(keys: ClientKeys, onEvict: () => void): Promise<TransferSlot> {
    const slot = new TransferSlot(this.slots.open(keys, onEvict), () => this.admitWaiting());
    if (slot.tryTake()) return slot;
    const turn = this.turns.open(keys);
    if (!turn.tryTake(1)) {
      turn.release();
      slot.leave();
      throw overloaded();
    }
    return new Promise((resolve, reject) => {
      const deadline = startDeadline(this.limits.queueTimeoutMs, () => {
        this.queue.delete(queued);
        turn.release();
        slot.leave();
        reject(overloaded());
      });
      const queued = { slot, turn, deadline, admit: resolve };
      this.queue.add(queued);
    });
  }

  counts(): { inside: number; waiting: number; limit: number; evicted: number } {
    const { used, total, evicted } = this.slots.counts();
    return { inside: used, waiting: this.queue.size, limit: total, evicted };
  }

  private admitWaiting(): void {
    for (const queued of this.queue) {
      if (!queued.slot.tryTake()) continue;
      this.queue.delete(queued);
      queued.turn.release();
      cancelDeadline(queued.deadline);
      queued.admit(queued.slot);
    }
  }
}
