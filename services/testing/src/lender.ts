import { randomUUID } from 'node:crypto';

/** Where instances run that end together: one process for all of them, or the processes of a stack. */
export interface Place<What, Instance> {
  start(what: What): Promise<Instance>;
  /** Resolves with a sentence when one of its processes has ended that nobody has stopped. */
  crashed: Promise<string>;
  stop(): Promise<void>;
}

interface Loan {
  suite: string;
  /** Why the suite must fail, once the place has crashed. */
  crash?: string;
}

/**
 * Lends instances to suites, several at a time. Each starts when it is first asked for. When the place crashes, the suites that
 * have something from it fail when they give that back, and it is opened once more in a run, no more.
 */
export class Lender<What, Instance extends object> {
  private place: Promise<Place<What, Instance>> | undefined;
  private readonly instances = new Map<What, Promise<Instance>>();
  private readonly loans = new Map<string, Loan>();
  private readonly crashes: string[] = [];

  constructor(
    private readonly name: string,
    private readonly open: () => Promise<Place<What, Instance>>,
  ) {}

  /** Lends `what` to a suite, which passes `id` to `takeBack`. Throws when the place has crashed twice, with both sentences. */
  async lend(what: What, suite: string): Promise<Instance & { id: string }> {
    if (this.crashes.length > 1) throw new Error(this.crashes.join(' '));
    const id = randomUUID();
    this.loans.set(id, { suite });
    try {
      const place = await (this.place ??= this.openWatched());
      let instance = this.instances.get(what);
      if (!instance) this.instances.set(what, (instance = place.start(what)));
      return { ...(await instance), id };
    } catch (error) {
      this.loans.delete(id);
      throw error;
    }
  }

  /** Throws when the place has crashed meanwhile. */
  takeBack(id: string): void {
    const loan = this.loans.get(id);
    this.loans.delete(id);
    if (loan?.crash !== undefined) throw new Error(loan.crash);
  }

  async stop(): Promise<void> {
    await (await this.place?.catch(() => undefined))?.stop();
  }

  private async openWatched(): Promise<Place<What, Instance>> {
    const place = await this.open();
    void place.crashed.then((how) => {
      const loans = [...this.loans.values()].filter(({ crash }) => crash === undefined);
      const sentence = `${this.name} has crashed while these suites had it: ${loans.map(({ suite }) => suite).join(', ')}. ${how}`;
      for (const loan of loans) loan.crash = sentence;
      this.crashes.push(sentence);
      console.error(`\nCRASHED: ${sentence}\n`);
      this.place = undefined;
      this.instances.clear();
      // What is left of it is as good as gone.
      return place.stop().catch(() => undefined);
    });
    return place;
  }
}
