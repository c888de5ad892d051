import { append } from '@granary/shared/bus/outbox';
import { row, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

/** A change of the blobs of a collection; negative for removed ones. */
export interface UsageChange {
  appId: string;
  collection: string;
  /** Null for blobs from before numbers were kept. */
  collectionNumber: bigint | null;
  sizeBytes: bigint;
  blobCount: bigint;
}

/**
 * Applies a change to the counters of a collection and publishes the new totals: absolute values, so applying the event
 * twice is harmless. Collections of the same name are counted apart by their number, because blobs of a deleted one may
 * be removed after its successor has some. Blobs without a number count in the first numbered collection of their name.
 */
export async function changeUsage(tx: Connection, change: UsageChange): Promise<void> {
  const { appId, collection } = change;
  const number = change.collectionNumber ?? (await unnumberedCountIn(tx, change));
  const usage = number === 0n ? await countUnnumbered(tx, change) : await countNumbered(tx, change, number);
  const name = `${appId}/${collection}`;
  await append(tx, [
    {
      topic: 'usage',
      key: appId,
      aggregateId: number === 0n ? name : `${name}/${number}`,
      aggregateSequence: usage.sequence,
      type: 'blobs.usage',
      payload: {
        app_id: appId,
        collection,
        ...(number > 0n && { collection_number: number.toString() }),
        size_bytes: Number(usage.sizeBytes),
        blob_count: Number(usage.blobCount),
        at: usage.at.toISOString(),
      },
    },
  ]);
}

interface CountedUsage {
  sizeBytes: bigint;
  blobCount: bigint;
  sequence: bigint;
  at: Date;
}

/** Takes over what was counted by name alone; that row keeps its sequence numbers. */
async function countNumbered(
  tx: Connection,
  { appId, collection, sizeBytes, blobCount }: UsageChange,
  number: bigint,
): Promise<CountedUsage> {
  const counted = await row<CountedUsage>(
    tx,
    // Postgres checks the inserted values even on conflict; a decrease always finds a row.
    sql`with unnumbered as (
        update blob_usage set size_bytes = 0, blob_count = 0, counts_in = ${number}
        where app_id = ${appId} and collection = ${collection} and counts_in is null
        returning old.size_bytes, old.blob_count),
      added as (
        select coalesce(sum(size_bytes), 0)::bigint + ${sizeBytes}::bigint as bytes,
          coalesce(sum(blob_count), 0)::bigint + ${blobCount}::bigint as blobs
        from unnumbered)
      insert into numbered_blob_usage as usage (app_id, collection, collection_number, size_bytes, blob_count, sequence)
      select ${appId}, ${collection}, ${number}::bigint, greatest(0, bytes), greatest(0, blobs), 1 from added
      on conflict (app_id, collection, collection_number) do update set
        size_bytes = usage.size_bytes + (select bytes from added),
        blob_count = usage.blob_count + (select blobs from added), sequence = usage.sequence + 1
      returning size_bytes as "sizeBytes", blob_count as "blobCount", sequence, clock_timestamp() as at`,
  );
  return counted!;
}

async function countUnnumbered(tx: Connection, change: UsageChange): Promise<CountedUsage> {
  const { appId, collection, sizeBytes, blobCount } = change;
  const counted = await row<CountedUsage>(
    tx,
    sql`insert into blob_usage as usage (app_id, collection, size_bytes, blob_count, sequence)
      values (${appId}, ${collection}, greatest(0, ${sizeBytes}::bigint), greatest(0, ${blobCount}::bigint), 1)
      on conflict (app_id, collection) do update set size_bytes = usage.size_bytes + ${sizeBytes}::bigint,
        blob_count = usage.blob_count + ${blobCount}::bigint, sequence = usage.sequence + 1
      returning size_bytes as "sizeBytes", blob_count as "blobCount", sequence, clock_timestamp() as at`,
  );
  return counted!;
}

/** The collection that blobs without a number count in; 0 when there is none yet. */
async function unnumberedCountIn(tx: Connection, { appId, collection }: UsageChange): Promise<bigint> {
  const usage = await row<{ number: bigint | null }>(
    tx,
    sql`select counts_in as number from blob_usage where app_id = ${appId} and collection = ${collection}`,
  );
  return usage?.number ?? 0n;
}
