import { rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { Logger } from '@granary/shared/logger';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import { batchMax, type LedgerBatches } from './ledger-batches';
import { transferId } from '@granary/shared/money/transfer-id';

/** How often expired holds are looked for. */
const everyMs = 5_000;

export interface ExpiredHoldsOptions {
  pool: Pool;
  ledger: LedgerBatches;
  log: Logger;
}

/** Voids holds that have expired, in one process of the service at a time. */
export function startVoidingExpiredHolds({ pool, ledger, log }: ExpiredHoldsOptions): { stop(): Promise<void> } {
  return startScheduledTask({
    pool,
    log,
    name: 'expired holds',
    everyMs,
    run: async (stopping) => {
      while (!stopping.aborted && (await voidExpiredHolds(pool, ledger)) === batchMax);
    },
  });
}

/**
 * Voids up to a batch of expired holds, the oldest first, and returns how many it found. The ids of the voids are made
 * from those of the holds, so that a run that is repeated or concurrent with another changes nothing twice.
 */
export async function voidExpiredHolds(pool: Pool, ledger: LedgerBatches): Promise<number> {
  const expired = await rows<{ id: string; kind: string; expiresAt: Date }>(
    pool,
    sql`select open_hold.id, transfer.kind, open_hold.expires_at as "expiresAt"
        from open_hold join transfer using (id)
        where open_hold.expires_at <= clock_timestamp() order by open_hold.expires_at limit ${batchMax}`,
  );
  await Promise.all(
    expired.map(({ id: holdId, kind, expiresAt }) =>
      ledger.apply([{ type: 'void', id: transferId(expiresAt, 'expired', holdId), holdId, kind }]),
    ),
  );
  return expired.length;
}
