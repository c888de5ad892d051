import { append } from '@granary/shared/bus/outbox';
import type { Logger } from '@granary/shared/logger';
import { rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { usageColumns, usageEvent, type UsageRow } from './collections';

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
  private sweptAtMs = 0;
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
    const sweeps = Date.now() - this.sweptAtMs >= sweepEveryMs;
    if (numbers.length === 0 && !sweeps) return;
    for (const number of numbers) this.changed.delete(number);
    try {
      if (await this.publish(sweeps ? undefined : numbers)) this.afterPublish();
      if (!sweeps) return;
      this.sweptAtMs = Date.now();
      // What is left tells of nothing: its collection uses as much as before, or is gone.
      this.traces.clear();
    } catch (error) {
      for (const number of numbers) this.changed.add(number);
      this.log.warn({ err: error }, 'usage was not published, trying again');
    }
  }

  /**
   * The event and the counters that it tells are one transaction. A row that a commit holds is passed over: once that
   * is through, the collection has changed again. Undefined: all collections that have changed.
   */
  private publish(numbers: readonly bigint[] | undefined): Promise<boolean> {
    const which = numbers === undefined ? sql`true` : sql`c.number = any(${numbers.map(String)}::int8[])`;
    return retriedTransaction(this.pool, async (tx) => {
      const found = await rows<UsageRow & { collection_name: string; app_id: string }>(
        tx,
        sql`with dirty as (
              select c.number as dirty_number, c.name, a.app_id from collection c join application a on a.number = c.app_number
              where ${which} and c.deleted_at is null and a.deleted_at is null
                and (c.row_count - c.deleted_count, c.size_bytes) is distinct from (c.published_documents, c.published_bytes)
              order by c.number limit ${publishBatch} for no key update of c skip locked)
            update collection c set usage_sequence = usage_sequence + 1,
              published_documents = row_count - deleted_count, published_bytes = size_bytes
            from dirty d where c.number = d.dirty_number
            returning ${usageColumns}, d.name as collection_name, d.app_id`,
      );
      const at = new Date();
      await append(
        tx,
        found.map((usage) => ({
          ...usageEvent(usage.app_id, usage.collection_name, usage, at),
          trace: this.traces.get(nameOf(usage.app_id, usage.collection_name)),
        })),
      );
      for (const { app_id, collection_name } of found) this.traces.delete(nameOf(app_id, collection_name));
      return found.length > 0;
    });
  }
}
