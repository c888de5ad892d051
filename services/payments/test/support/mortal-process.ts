import { randomUUID } from 'node:crypto';
import type { Pool } from '@granary/shared/postgres/pool';
import type { Plan, SettlementNetwork } from '../../src/networks/settlement-network';
import { Claims } from '../../src/settlement/claims';
import type { Copy } from './evm-payments';

const ownedMs = 60;

export class ProcessEnded extends Error {
  override message = 'this process has ended';
}

/** How many processes have ended, of those that are to, and which call is the last one of each. */
export class Crashes {
  count = 0;

  /**
   * @param chance Of each call to be the last one.
   * @param random Decides that, and which process a client reaches.
   */
  constructor(
    readonly wanted: number,
    private readonly chance: number,
    readonly random: () => number,
  ) {}

  get areOver(): boolean {
    return this.count >= this.wanted;
  }

  /** Whether the process of this call ends now. */
  happensNow(): boolean {
    const happens = !this.areOver && this.random() < this.chance;
    if (happens) this.count += 1;
    return happens;
  }
}

/** A process: any of its calls to the database and the network may be its last, before or after it had its effect. */
export class MortalProcess {
  isDead = false;
  readonly copy: Copy;

  constructor(
    private readonly crashes: Crashes,
    pool: Pool,
    network: SettlementNetwork,
    newCopy: (network: SettlementNetwork, options: { claims: Claims; waitMs: number }) => Copy,
  ) {
    const claims = this.mortal(new Claims(pool, randomUUID(), ownedMs));
    this.copy = newCopy(this.mortal(network), { claims, waitMs: 200 });
  }

  private mortal<T extends object>(target: T): T {
    return new Proxy(target, {
      get: (object, name) => {
        const value: unknown = Reflect.get(object, name);
        if (typeof value !== 'function' || name === 'isOpen') return value;
        // It waits only.
        if (name === 'nextBlock') return value.bind(object) as unknown;
        return async (...given: unknown[]) => {
          this.mayDie();
          const result: unknown = await (value as (...all: unknown[]) => Promise<unknown>).apply(object, given);
          if (name === 'plan') return this.mortalPlan(result as Plan);
          this.mayDie();
          return result;
        };
      },
    });
  }

  /** It may also end within the database transaction that stores what was signed. */
  private mortalPlan(plan: Plan): Plan {
    if (plan.state !== 'ready') return plan;
    try {
      this.mayDie();
    } catch (error) {
      // What a process has promised ends with it.
      plan.release?.();
      throw error;
    }
    return {
      ...plan,
      sign: async (tx) => {
        const signed = await plan.sign(tx);
        this.mayDie();
        return signed;
      },
    };
  }

  private mayDie(): void {
    if (!this.isDead && this.crashes.happensNow()) {
      this.isDead = true;
      void this.copy.settler.stop();
    }
    if (this.isDead) throw new ProcessEnded();
  }
}

/** Two processes, each replaced once it has ended; any of them. */
export function livingProcesses(
  { random }: Crashes,
  newProcess: () => MortalProcess,
): { any: () => Copy; stop: () => Promise<unknown> } {
  const processes = [newProcess(), newProcess()];
  return {
    any: () => {
      const at = Math.floor(random() * processes.length);
      if (processes[at]!.isDead) processes[at] = newProcess();
      return processes[at]!.copy;
    },
    stop: () => Promise.all(processes.map(({ copy }) => copy.settler.stop())),
  };
}
