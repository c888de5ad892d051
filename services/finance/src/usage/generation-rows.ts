import { execute, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { nextChargeAt, type Generation, type Measure } from './generation';

/** A row of `collection_generation`, by `generationColumns`. */
export interface GenerationRow extends Omit<
  Generation,
  'data' | 'blobs' | 'pendingBlobs' | 'accrued' | 'accruedLater' | 'charged'
> {
  dataBytes: bigint;
  dataAt: Date;
  blobBytes: bigint;
  blobAt: Date;
  /** JSON: pairs of bytes and milliseconds since 1970. */
  blobAhead: string;
  accrued: string;
  /** JSON: pairs of the number of a period and units, see `Generation`. */
  accruedLater: string;
  charged: string;
}

export const generationColumns = sql`app_id as "appId", collection, number, retention_days as "retentionDays",
  document_count as "documentCount", data_bytes as "dataBytes", data_at as "dataAt", blob_bytes as "blobBytes",
  blob_at as "blobAt", blob_ahead as "blobAhead", began_at as "beganAt", accrued, accrued_later as "accruedLater",
  charged_periods as "chargedPeriods", charged, deleted_at as "deletedAt"`;

export function fromRow(generationRow: GenerationRow): Generation {
  const { dataBytes, dataAt, blobBytes, blobAt, blobAhead, accrued, accruedLater, charged, ...same } = generationRow;
  const pending = JSON.parse(blobAhead) as Array<[string, number]>;
  const later = JSON.parse(accruedLater) as Array<[number, string]>;
  return {
    ...same,
    data: { bytes: dataBytes, at: dataAt },
    blobs: { bytes: blobBytes, at: blobAt },
    pendingBlobs: pending.map(([bytes, atMs]) => ({ bytes: BigInt(bytes), at: new Date(atMs) })),
    accrued: BigInt(accrued),
    accruedLater: new Map(later.map(([period, units]) => [period, BigInt(units)])),
    charged: BigInt(charged),
  };
}

const toPendingText = (measures: readonly Measure[]): string =>
  JSON.stringify(measures.map(({ bytes, at }) => [bytes.toString(), at.getTime()]));

export const toLaterText = (periods: Generation['accruedLater']): string =>
  JSON.stringify([...periods].map(([period, units]) => [period, units.toString()]));

/** Inserts or replaces a generation that is locked or new; its next charge is scheduled. */
export async function saveGeneration(tx: Connection, generation: Generation): Promise<void> {
  const { appId, collection, number, retentionDays, documentCount, data, blobs, beganAt, deletedAt } = generation;
  await execute(
    tx,
    sql`insert into collection_generation (app_id, collection, number, retention_days, document_count, data_bytes,
          data_at, blob_bytes, blob_at, blob_ahead, began_at, accrued, accrued_later, deleted_at, next_charge_at)
        values (${appId}, ${collection}, ${number}, ${retentionDays}, ${documentCount}, ${data.bytes},
          ${data.at}, ${blobs.bytes}, ${blobs.at}, ${toPendingText(generation.pendingBlobs)}, ${beganAt},
          ${generation.accrued}, ${toLaterText(generation.accruedLater)}, ${deletedAt}, ${nextChargeAt(generation) ?? null})
        on conflict (app_id, collection, number) do update set
          retention_days = excluded.retention_days, document_count = excluded.document_count,
          data_bytes = excluded.data_bytes, data_at = excluded.data_at, blob_bytes = excluded.blob_bytes,
          blob_at = excluded.blob_at, blob_ahead = excluded.blob_ahead, began_at = excluded.began_at,
          accrued = excluded.accrued, accrued_later = excluded.accrued_later, deleted_at = excluded.deleted_at,
          next_charge_at = excluded.next_charge_at`,
  );
}
