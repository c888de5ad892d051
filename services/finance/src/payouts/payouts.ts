import { invalid } from '@granary/shared/errors';
import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { splitPage, type Page, type PageRequest } from '../page';

export const payoutStatuses = ['pending', 'broadcast', 'confirmed', 'failed'] as const;
export type PayoutStatus = (typeof payoutStatuses)[number];

export interface Payout {
  id: string;
  amountUtia: bigint;
  destination: string;
  trigger: 'auto' | 'manual';
  status: PayoutStatus;
  txHash: string | null;
  error: string | null;
  createdAt: Date;
  updatedAt: Date;
}

/** The payouts of an application, newest first, and how many there are; one statement, so that both agree. */
export async function listPayouts(
  db: Queryable,
  appId: string,
  page: PageRequest,
  status?: PayoutStatus,
): Promise<Page<Payout>> {
  const condition = sql`app_id = ${appId} and (${status ?? null}::text is null or status = ${status ?? null})`;
  const payouts = await rows<Payout & { total: bigint }>(
    db,
    sql`select total.total, page.*
        from (select count(*) as total from payout where ${condition}) total
        left join (
          select id, amount as "amountUtia", destination, trigger, status, tx_hash as "txHash", error,
                 created_at as "createdAt", updated_at as "updatedAt"
          from payout where ${condition} order by created_at desc, id desc limit ${page.limit} offset ${page.offset}
        ) page on true
        order by page."createdAt" desc, page.id desc`,
  );
  return splitPage(payouts, (each) => each.id !== null);
}

/** A status from the wire; empty means any. Throws INVALID_ARGUMENT. */
export function parsePayoutStatus(text: string): PayoutStatus | undefined {
  if (text === '') return undefined;
  const status = payoutStatuses.find((each) => each === text);
  if (!status) throw invalid('There is no such status', { status: [`must be one of ${payoutStatuses.join(', ')}`] });
  return status;
}
