import { appendPassed } from '@granary/shared/bus/outbox';
import type { Logger } from '@granary/shared/logger';
import { databaseTime } from '@granary/shared/postgres/clock';
import { rows, type Pool } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { usageColumns, usageEvent, type UsageRow } from './event';

/** Commits in this interval share one event: a usage event has absolute numbers, so the last one is enough. */
const publishEveryMs = 200;
/** Collections whose events one transaction publishes. */
const publishBatch = 500;
/**
 * How often all collections are checked, for what a killed replica has not published. All replicas may do so at once:
 * each skips the rows that another has locked.
 */
const sweepEveryMs = 60_000;
/** Traces that wait for their event; further ones end with their write. */
const tracesMax = 1_000;

const nameOf = (appId: string, collection: string) => `${appId}/${collection}`;

/**
 * Publishes what collections use, soon after their counters have changed. Each commit updates the counters in its own
 * transaction; an event in each of them would cost more than the write.
 */
export class UsagePublisher {
  private readonly changed = new Set<bigint>();
  /** The traces of traced writes by collection; an event for several writes belongs to the last one. */
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

  /** Notes a collection whose counters have changed. */
  touch(collectionNumber: bigint): void {
    this.changed.add(collectionNumber);
  }

  /** Notes the trace of a write to a collection, to which the usage event that follows belongs. */
  touchTraced(appId: string, collection: string, trace: string): void {
    if (this.traces.size < tracesMax) this.traces.set(nameOf(appId, collection), trace);
  }

  /** Publishes what remains. */
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
      // No event follows for the rest: the collection uses as much as before, or is gone.
      this.traces.clear();
    } catch (error) {
      for (const number of numbers) this.changed.add(number);
      this.log.warn({ err: error }, 'usage was not published, trying again');
    }
  }

  /** Publishes for these collections, undefined for all that have changed. Returns how many events there were. */
  private async publish(numbers: readonly bigint[] | undefined): Promise<number> {
    const which = numbers === undefined ? sql`true` : sql`number = any(${numbers.map(String)}::int8[])`;
    const usages = await rows<UsageRow & { collection_name: string; app_id: string }>(
      this.pool,
      sql`select ${usageColumns}, name as collection_name, app_id
          from collection join (select number as app_number, app_id from application where deleted_at is null) app using (app_number)
          where ${which} and deleted_at is null
            and (row_count - deleted_count, size_bytes, index_bytes)
                is distinct from (published_documents, published_bytes, published_index_bytes)
          order by number limit ${publishBatch}`,
    );
    if (usages.length === 0) return 0;
    const time = await databaseTime(this.pool);
    const events = usages.map((usage) => ({
      ...usageEvent(usage.app_id, usage.collection_name, { ...usage, usage_sequence: usage.usage_sequence + 1n }, time),
      trace: this.traces.get(nameOf(usage.app_id, usage.collection_name)),
    }));
    const published = await appendPassed(this.pool, publishing(usages), events);
    // The others are locked by a commit, which touches them again, or by another replica, which may have older numbers.
    if (published < usages.length) for (const { number } of usages) this.changed.add(number);
    else for (const { app_id, collection_name } of usages) this.traces.delete(nameOf(app_id, collection_name));
    return published;
  }
}

/**
 * Marks in the catalog what is published, where no other replica has published since it was read. It is one statement
 * with the events, so that a commit that updates counters waits for this statement at most.
 */
function publishing(usages: readonly UsageRow[]): Sql {
  const column = (of: (usage: UsageRow) => bigint) => sql`${usages.map((usage) => of(usage).toString())}::int8[]`;
  return sql`
    held as (
      select c.number, p.place, p.documents, p.size_bytes, p.index_bytes
      from unnest(${column(({ number }) => number)}, ${column((usage) => usage.usage_sequence)},
          ${column(({ documents }) => documents)}, ${column((usage) => usage.size_bytes)},
          ${column((usage) => usage.index_bytes)})
          with ordinality as p (number, usage_sequence, documents, size_bytes, index_bytes, place)
        join collection c on c.number = p.number and c.usage_sequence = p.usage_sequence
      where c.deleted_at is null order by c.number for no key update of c skip locked
    ), passed as (
      update collection c set usage_sequence = c.usage_sequence + 1,
        published_documents = held.documents, published_bytes = held.size_bytes,
        published_index_bytes = held.index_bytes
      from held where c.number = held.number returning held.place
    )`;
}
