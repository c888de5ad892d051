import { setTimeout as delay } from 'node:timers/promises';
import { CommitUnknownError, transaction } from '@granary/shared/postgres/transaction';
import { execute, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { publish } from './bus-world';

/** A transaction that publishes, as its writer recorded it. */
interface Write {
  key: string;
  events: number;
  /** The number of its first event; undefined: it did not get that far. */
  first?: bigint;
  outcome: Outcome;
  /** Why it failed. */
  error?: unknown;
}

/** The outcome as the writer saw it. `failed`: before COMMIT was sent; `unknown`: there was no answer to it. */
export type Outcome = 'acknowledged' | 'rolled back' | 'failed' | 'unknown';

const keys = 60;
const eventsMax = 20;
const rollbackShare = 0.1;
const problemsMax = 20;

class ChangedMind extends Error {}

/**
 * Writers, and a record of the outcomes that they saw: exactly the recorded events must have been applied in the end. A
 * write also stores its number in the publisher's table `written`, for those whose answer was lost.
 */
export class Ledger {
  private readonly writes: Write[] = [];

  /**
   * `writers`: what the writers use, one connection each; `publisher`: the same database, to look at in the end;
   * `random` chooses what is written.
   */
  constructor(
    private readonly writers: Pool,
    private readonly publisher: Pool,
    private readonly random: () => number,
  ) {}

  /** One transaction with 1 to 20 events of a key, which may be rolled back. Resolves to its outcome. */
  async write(): Promise<Readonly<Write>> {
    const number = this.writes.length;
    const events = 1 + Math.floor(this.random() * eventsMax);
    const write: Write = { key: `key-${Math.floor(this.random() * keys)}`, events, outcome: 'unknown' };
    this.writes.push(write);
    // Half of them have an id before they wait for the key, and so commit out of the order of ids.
    const isEarly = this.random() < 0.5;
    try {
      await transaction(this.writers, async (tx) => {
        const note = () => execute(tx, sql`insert into written (write) values (${number})`);
        if (isEarly) await note();
        write.first = await publish(tx, write.key, events, (at) => valueOf(number, at));
        if (!isEarly) await note();
        if (this.random() < rollbackShare) throw new ChangedMind();
      });
      write.outcome = 'acknowledged';
    } catch (error) {
      if (error instanceof ChangedMind) write.outcome = 'rolled back';
      else if (!(error instanceof CommitUnknownError)) Object.assign(write, { outcome: 'failed', error });
    }
    return write;
  }

  /** How many writes ended how. */
  counts(): Record<Outcome, number> {
    const counts = { acknowledged: 0, 'rolled back': 0, failed: 0, unknown: 0 };
    for (const { outcome } of this.writes) counts[outcome]++;
    return counts;
  }

  /** Why writes failed. */
  errors(): unknown[] {
    return this.writes.filter(({ outcome }) => outcome === 'failed').map(({ error }) => error);
  }

  /** How many events must be applied by now, if no writer is at work. */
  async eventCount(): Promise<number> {
    return (await this.committed()).reduce((sum, number) => sum + this.writes[number]!.events, 0);
  }

  /** The differences between what `subscriber` has applied and what was published, once no event is pending. */
  async findProblems(subscriber: Pool): Promise<string[]> {
    const problems: string[] = [];
    const expected = new Map<string, bigint>();
    const committed = new Set(await this.committed());
    for (const [number, { key, events, first, outcome }] of this.writes.entries()) {
      const isThere = committed.has(number);
      if (outcome !== 'unknown' && isThere !== (outcome === 'acknowledged'))
        problems.push(`write ${number} was ${outcome} and is ${isThere ? 'there' : 'gone'}`);
      if (!isThere) continue;
      for (let at = 0; at < events; at++) expected.set(`${key} ${first! + BigInt(at)}`, valueOf(number, at));
    }
    const applied = await rows<{ key: string; seq: bigint; value: bigint }>(
      subscriber,
      sql`select key, seq, value from applied order by number`,
    );
    const reached = new Map<string, bigint>();
    for (const { key, seq, value } of applied) {
      const last = reached.get(key) ?? 0n;
      if (seq !== last + 1n) problems.push(`${key}: ${seq} was applied after ${last}`);
      reached.set(key, seq > last ? seq : last);
      if (expected.get(`${key} ${seq}`) !== value) problems.push(`${key}: ${seq} was applied as ${value}`);
    }
    for (const name of expected.keys()) {
      const [key, seq] = name.split(' ') as [string, string];
      if ((reached.get(key) ?? 0n) < BigInt(seq)) problems.push(`${key}: ${seq} was not applied`);
    }
    if (applied.length !== expected.size) problems.push(`${expected.size} events had ${applied.length} effects`);
    if ((await idsOf(this.publisher, 'outbox')) !== (await idsOf(subscriber, 'applied')))
      problems.push('the ids of what was published and of what was applied differ');
    return problems.slice(0, problemsMax);
  }

  /**
   * Has writers write at the same time, each with a pause of up to twice `pauseMs` after a write, until it is stopped.
   * `tookMs`: how long each write took.
   */
  startLoad({ writers, pauseMs }: { writers: number; pauseMs: number }): { tookMs: number[]; stop(): Promise<void> } {
    const tookMs: number[] = [];
    let stopped = false;
    const writeOn = async () => {
      while (!stopped) {
        const startedMs = performance.now();
        await this.write();
        tookMs.push(performance.now() - startedMs);
        await delay(this.random() * 2 * pauseMs);
      }
    };
    const running = Promise.all(Array.from({ length: writers }, writeOn));
    return {
      tookMs,
      stop: async () => {
        stopped = true;
        await running;
      },
    };
  }

  private async committed(): Promise<number[]> {
    const found = await rows<{ write: bigint }>(this.publisher, sql`select write from written`);
    return found.map(({ write }) => Number(write));
  }
}

/** A value that no other event has. */
const valueOf = (write: number, at: number) => BigInt(write * eventsMax + at);

/** A checksum of the ids of all events, with their multiplicity. */
async function idsOf(pool: Pool, table: 'outbox' | 'applied'): Promise<string | null> {
  const from = table === 'outbox' ? sql`outbox` : sql`applied`;
  const [found] = await rows<{ ids: string | null }>(
    pool,
    sql`select md5(string_agg(id::text, ',' order by id)) as ids from ${from}`,
  );
  return found!.ids;
}
