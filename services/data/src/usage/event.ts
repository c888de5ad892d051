import { sql } from '@granary/shared/postgres/sql';

/** The usage of a collection, and the sequence number of its events. */
export interface UsageRow {
  number: bigint;
  documents: bigint;
  size_bytes: bigint;
  /** The size of its indexes, as of their last measurement. */
  index_bytes: bigint;
  retention_days: number | null;
  usage_sequence: bigint;
}

/** The columns of a collection that a statement on its row returns for `usageEvent`. */
export const usageColumns = sql`number, row_count - deleted_count as documents, size_bytes, index_bytes, retention_days, usage_sequence`;

/** The event with what a collection uses now, in absolute numbers: the last one is enough. */
export function usageEvent(appId: string, collection: string, usage: UsageRow, time: Date) {
  return {
    topic: 'usage',
    key: appId,
    aggregateId: `collection/${usage.number}`,
    aggregateSequence: usage.usage_sequence,
    type: 'collection.usage',
    payload: {
      app_id: appId,
      collection,
      collection_number: usage.number.toString(),
      size_bytes: Number(usage.size_bytes),
      index_bytes: Number(usage.index_bytes),
      document_count: Number(usage.documents),
      retention_days: usage.retention_days,
      at: time.toISOString(),
    },
  };
}
