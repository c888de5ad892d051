import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { splitPage, type Page, type PageRequest } from '../page';

/** A deduction under a user's grant, for which the user has not signed each operation. */
export interface AuthzTransaction {
  transactionHash: string;
  userAddress: string;
  appId: string;
  operationType: string;
  collection: string;
  amountUtia: bigint;
  status: string;
  blockHeight: bigint;
  createdAt: Date;
}

/** The transactions of a user or those with an application, newest first, and how many there are. */
export async function listAuthzTransactions(
  db: Queryable,
  party: { userAddress: string } | { appId: string },
  page: PageRequest,
): Promise<Page<AuthzTransaction>> {
  const condition = 'appId' in party ? sql`app_id = ${party.appId}` : sql`user_address = ${party.userAddress}`;
  const transactions = await rows<AuthzTransaction & { total: bigint }>(
    db,
    sql`select total.total, page.*
        from (select count(*) as total from authz_transaction where ${condition}) total
        left join (
          select number, transaction_hash as "transactionHash", user_address as "userAddress", app_id as "appId",
                 operation_type as "operationType", collection, amount as "amountUtia", status,
                 block_height as "blockHeight", created_at as "createdAt"
          from authz_transaction where ${condition}
          order by created_at desc, number desc limit ${page.limit} offset ${page.offset}
        ) page on true
        order by page."createdAt" desc, page.number desc`,
  );
  return splitPage(transactions, (each) => each.transactionHash !== null);
}
