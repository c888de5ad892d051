import { appendPassed } from '@granary/shared/bus/outbox';
import type { Logger } from '@granary/shared/logger';
import { databaseTime } from '@granary/shared/postgres/clock';
import { rows, type Pool } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { usageColumns, usageEvent, type UsageRow } from './event';

/** Commits of this time are told in one event: a usage event carries absolute numbers, so the last one tells all. */
const publishEveryMs = 200;
/** Collections that one transaction tells of. */
const publishBatch = 500;
/**
 * How often all collections are looked through, for what a copy that was killed had not told. All copies may do so at
 * once: each passes over the rows that another tells of.
 */
const sweepEveryMs = 60_000;
/** Traces that wait for their event; beyond, one ends with its write. */
const tracesMax = 1_000;

const nameOf = (appId: string, collection: string) => `${appId}/${collection}`;

/**
 * Tells by event what collections use, soon after their counters have changed. The counters are kept by each commit in
 * its own transaction; an event in each of them would cost more than the write that it tells of.
 */
export class UsagePublisher {
  private readonly changed = new Set<bigint>();
  /** Of writes that are traced, by collection; with an event that tells of several writes the last one counts. */
  private readonly traces = new Map<string, string>();
  private sweptAtMs = -Infinity;
  private running = Promise.resolve();
  private readonly timer: NodeJS.Timeout;

  constructor(
    private readonly pool: Pool,
    private readonly log: Logger,
    private readonly afterPublish: () => void,
  ) {
    this.timer = setInterval(() => {
      this.running = this.running.then(() => this.round());
    }, publishEveryMs);
  }

  /** A collection whose counters have changed. */
  touch(collectionNumber: bigint): void {
    this.changed.add(collectionNumber);
  }

  /** The same for one of a write that is traced, once that is committed: the event that tells of it says so. */
  touchTraced(appId: string, collection: string, trace: string): void {
    if (this.traces.size < tracesMax) this.traces.set(nameOf(appId, collection), trace);
  }

  /** Tells what is left to tell. */
  async stop(): Promise<void> {
    clearInterval(this.timer);
    await this.running;
    await this.round();
  }

  private async round(): Promise<void> {
    const numbers = [...this.changed].slice(0, publishBatch);
    const sweeps = performance.now() - this.sweptAtMs >= sweepEveryMs;
    if (numbers.length === 0 && !sweeps) return;
    for (const number of numbers) this.changed.delete(number);
    try {
      if ((await this.publish(sweeps ? undefined : numbers)) > 0) this.afterPublish();
      if (!sweeps) return;
      this.sweptAtMs = performance.now();
      // What is left tells of nothing: its collection uses as much as before, or is gone.
      this.traces.clear();
    } catch (error) {
      for (const number of numbers) this.changed.add(number);
      this.log.warn({ err: error }, 'usage was not published, trying again');
    }
  }

  /** Undefined: all collections that have changed. Answers how many were told of. */
  private async publish(numbers: readonly bigint[] | undefined): Promise<number> {
    const which = numbers === undefined ? sql`true` : sql`number = any(${numbers.map(String)}::int8[])`;
    const found = await rows<UsageRow & { collection_name: string; app_id: string }>(
      this.pool,
      sql`select ${usageColumns}, name as collection_name, app_id
          from collection join (select number as app_number, app_id from application where deleted_at is null) app using (app_number)
          where ${which} and deleted_at is null
            and (row_count - deleted_count, size_bytes) is distinct from (published_documents, published_bytes)
          order by number limit ${publishBatch}`,
    );
    if (found.length === 0) return 0;
    const at = await databaseTime(this.pool);
    const events = found.map((usage) => ({
      ...usageEvent(usage.app_id, usage.collection_name, { ...usage, usage_sequence: usage.usage_sequence + 1n }, at),
      trace: this.traces.get(nameOf(usage.app_id, usage.collection_name)),
    }));
    const told = await appendPassed(this.pool, telling(found), events);
    // The others are held by a commit, which touches them anew, or by another copy, which may know less.
    if (told < found.length) for (const { number } of found) this.changed.add(number);
    else for (const { app_id, collection_name } of found) this.traces.delete(nameOf(app_id, collection_name));
    return told;
  }
}

/**
 * Notes in the catalog what is told of collections, where nobody else has told of them since it was read. In one
 * statement with the events, so that a commit that must count has to wait for nothing but its end.
 */
function telling(found: readonly UsageRow[]): Sql {
  const column = (of: (usage: UsageRow) => bigint) => sql`${found.map((usage) => of(usage).toString())}::int8[]`;
  return sql`
    held as (
      select c.number, told.place, told.documents, told.size_bytes
      from unnest(${column(({ number }) => number)}, ${column((usage) => usage.usage_sequence)},
          ${column(({ documents }) => documents)}, ${column((usage) => usage.size_bytes)})
          with ordinality as told (number, usage_sequence, documents, size_bytes, place)
        join collection c on c.number = told.number and c.usage_sequence = told.usage_sequence
      where c.deleted_at is null order by c.number for no key update of c skip locked
    ), passed as (
      update collection c set usage_sequence = c.usage_sequence + 1,
        published_documents = held.documents, published_bytes = held.size_bytes
      from held where c.number = held.number returning held.place
    )`;
}
