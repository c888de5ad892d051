import { notFound } from '@granary/shared/errors';
import type { Commit } from '@granary/shared/gen/granary/data/v1/Commit';
import { parseTicket } from '@granary/shared/ids';
import { row } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { findCommits } from '../chain/commit-log';
import { TASK_NOT_FOUND } from '../jobs/queue';
import { resultsJson } from './write-request';
import type { FastContext } from '../postgres/databases';
import type { GetCommitRequest } from '@granary/shared/gen/granary/data/v1/GetCommitRequest';

/** The commit of a ticket. Throws TASK_NOT_FOUND for any other text. */
export async function getCommit({ fast }: FastContext, { ticketId }: GetCommitRequest): Promise<Commit> {
  const unknown = notFound(TASK_NOT_FOUND, 'There is no such task');
  const ticket = parseTicket(ticketId);
  if (ticket?.kind !== 'c' || ticket.appNumber > 2n ** 63n - 1n) throw unknown;
  const app = await row<{ app_id: string }>(
    fast,
    sql`select app_id from application where number = ${ticket.appNumber} and deleted_at is null`,
  );
  if (!app) throw unknown;
  const [commit] = await findCommits(fast, ticket.appNumber, [ticketId]);
  if (!commit) throw unknown;
  return {
    ticketId,
    appId: app.app_id,
    operationType: commit.operation,
    collection: commit.collection,
    transactionHash: commit.hash.toString('hex'),
    height: commit.height.toString(),
    collectionNumber: commit.collectionNumber.toString(),
    committedAt: commit.at.toISOString(),
    userAddress: commit.userAddress ?? '',
    resultJson: Buffer.concat([Buffer.from('{"results":'), resultsJson(commit), Buffer.from('}')]),
  };
}
