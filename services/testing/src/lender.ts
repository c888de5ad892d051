import { randomUUID } from 'node:crypto';

/** All instances in a place are lost when it crashes: it is one process for all of them, or the processes of stacks. */
export interface Place<What, Instance> {
  start(what: What): Promise<Instance>;
  /** Resolves with a sentence when one of its processes has ended that nobody has stopped. */
  crashed: Promise<string>;
  /** Ends it, once its instances have been stopped. */
  stop(): Promise<void>;
}

interface Stoppable {
  stop(): Promise<void>;
}

interface Loan {
  suite: string;
  /** Why the suite must fail, once the place has crashed. */
  crash?: string;
}

interface Lent<Instance> {
  started: Promise<Instance>;
  loans: Set<Loan>;
  /** Stops it, while nobody has it. */
  idle?: NodeJS.Timeout;
}

/**
 * Lends instances to suites, several at a time. Each starts when it is first asked for, and stops when nobody has had
 * it for `idleMs`: a Granary that does nothing still polls. When the place crashes, the suites that have something from
 * it fail when they give that back, and it is opened once more in a run, no more.
 */
export class Lender<What, Instance extends Stoppable> {
  private place: Promise<Place<What, Instance>> | undefined;
  private readonly instances = new Map<What, Lent<Instance>>();
  private readonly loans = new Map<string, Loan>();
  private readonly crashes: string[] = [];
  /** Why instances did not stop that nobody had any more. */
  private readonly unstopped: unknown[] = [];

  constructor(
    private readonly name: string,
    private readonly idleMs: number,
    private readonly open: () => Promise<Place<What, Instance>>,
  ) {}

  /**
   * Lends `what` to a suite, which passes `id` to `takeBack`. Throws when the place has crashed twice, with both
   * sentences.
   */
  async lend(what: What, suite: string): Promise<{ id: string; instance: Instance }> {
    if (this.crashes.length > 1) throw new Error(this.crashes.join(' '));
    const id = randomUUID();
    const loan: Loan = { suite };
    this.loans.set(id, loan);
    try {
      const place = await (this.place ??= this.openWatched());
      let lent = this.instances.get(what);
      if (!lent) this.instances.set(what, (lent = { started: place.start(what), loans: new Set() }));
      clearTimeout(lent.idle);
      lent.loans.add(loan);
      return { id, instance: await lent.started };
    } catch (error) {
      this.loans.delete(id);
      throw error;
    }
  }

  /** Throws when the place has crashed meanwhile. */
  takeBack(id: string): void {
    const loan = this.loans.get(id);
    if (!loan) return;
    this.loans.delete(id);
    if (loan.crash !== undefined) throw new Error(loan.crash);
    for (const [what, lent] of this.instances) {
      if (!lent.loans.delete(loan) || lent.loans.size > 0) continue;
      lent.idle = setTimeout(() => {
        this.instances.delete(what);
        stopped(lent).catch((error: unknown) => this.unstopped.push(error));
      }, this.idleMs);
    }
  }

  /** Throws when one of the instances that it has lent could not be stopped. */
  async stop(): Promise<void> {
    const place = await this.place?.catch(() => undefined);
    await this.stopInstances().catch((error: unknown) => this.unstopped.push(error));
    await place?.stop();
    if (this.unstopped.length > 0) throw new AggregateError(this.unstopped, `${this.name} did not stop`);
  }

  private async stopInstances(): Promise<void> {
    const all = [...this.instances.values()];
    this.instances.clear();
    for (const { idle } of all) clearTimeout(idle);
    await Promise.all(all.map(stopped));
  }

  private async openWatched(): Promise<Place<What, Instance>> {
    const place = await this.open();
    void place.crashed.then(async (how) => {
      const loans = [...this.loans.values()].filter(({ crash }) => crash === undefined);
      const sentence = `${this.name} has crashed while these suites had it: ${loans.map(({ suite }) => suite).join(', ')}. ${how}`;
      for (const loan of loans) loan.crash = sentence;
      this.crashes.push(sentence);
      console.error(`\nCRASHED: ${sentence}\n`);
      this.place = undefined;
      // Errors do not matter: what is left of the place is as good as gone.
      await this.stopInstances().catch(() => undefined);
      await place.stop().catch(() => undefined);
    });
    return place;
  }
}

/** An instance that could not start need not be stopped. */
async function stopped({ started }: Lent<Stoppable>): Promise<void> {
  const instance = await started.catch(() => undefined);
  await instance?.stop();
}
