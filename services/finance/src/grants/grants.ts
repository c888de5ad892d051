import { createHash, randomBytes } from 'node:crypto';
import { invalid, notFound } from '@granary/shared/errors';
import { newDocumentId } from '@granary/shared/ids';
import { maxUtia } from '@granary/shared/money/amounts';
import { addressProblem } from '@granary/shared/money/cosmos/address';
import { databaseTime } from '@granary/shared/postgres/clock';
import { execute, row, rows, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { ChainGrant, ChainGrants, Coverage } from '../chain/chain-grants';

export const GRANT_NOT_FOUND = 'GRANT_NOT_FOUND';
export const LIMIT_EXCEEDED = 'LIMIT_EXCEEDED';

/** Grants of one user that are in force, at most. */
const grantsMax = 32;
/** Applications that a grant names, at most. */
const appsMax = 100;
const yearMs = 365 * 86_400_000;

/** A user's permission for the platform to take money from the user's wallet. */
export interface Grant {
  id: string;
  address: string;
  limitUtia: bigint;
  spentUtia: bigint;
  /** Null: any application. */
  allowedApps: string[] | null;
  expiresAt: Date;
  createdAt: Date;
  revokedAt: Date | null;
}

export interface NewGrant {
  address: string;
  limitUtia: bigint;
  allowedApps: readonly string[];
  /** Undefined: in a year. */
  expiresAt?: Date | undefined;
}

export interface GrantOptions {
  pool: Pool;
  /** The prefix of all addresses. */
  prefix: string;
  chain: ChainGrants;
}

const columns = sql`id, address, limit_utia as "limitUtia", spent_utia as "spentUtia", allowed_apps as "allowedApps",
  expires_at as "expiresAt", created_at as "createdAt", revoked_at as "revokedAt"`;

const isInForce = sql`revoked_at is null and expires_at > clock_timestamp()`;

/**
 * The grant of a wallet to the broker on the chain, for deductions to `recipient`, or to the hot wallet where there is
 * none. No database transaction may wait for it. Throws VALIDATION_FAILED for a bad address.
 */
export function chainGrantOf(
  { prefix, chain }: GrantOptions,
  address: string,
  recipient?: string,
): Promise<ChainGrant> {
  const problem = addressProblem(address, prefix);
  if (problem !== undefined) throw invalid('The grant is not valid', { address: [problem] });
  return chain.look(address, recipient);
}

/**
 * Registers a grant, and answers the key by which it is used: that is shown once. Throws VALIDATION_FAILED,
 * LIMIT_EXCEEDED, and what the chain says where it has no such grant.
 */
export async function createGrant(
  tx: Connection,
  onChain: ChainGrant,
  request: NewGrant,
): Promise<{ grant: Grant; userKey: string }> {
  const { address, limitUtia, allowedApps } = request;
  const userKey = `user_${randomBytes(32).toString('base64url')}`;
  await lockUser(tx, address);
  const now = await databaseTime(tx);
  const expiresAt = request.expiresAt ?? new Date(now.getTime() + yearMs);
  assertValid({ ...request, expiresAt }, now);
  const { count } = (await row<{ count: bigint }>(
    tx,
    sql`select count(*) as count from user_grant where address = ${address} and ${isInForce}`,
  ))!;
  if (count >= BigInt(grantsMax)) throw invalid(`A wallet may have ${grantsMax} grants at a time`, {}, LIMIT_EXCEEDED);
  const grant = (await row<Grant>(
    tx,
    sql`insert into user_grant (id, address, key_hash, limit_utia, allowed_apps, expires_at, created_at)
        values (${newDocumentId()}, ${address}, ${hashOf(userKey)}, ${limitUtia},
                ${allowedApps.length === 0 ? null : allowedApps}::text[], ${expiresAt}, ${now}) returning ${columns}`,
  ))!;
  const coverage = await inForce(tx, address);
  if (coverage) await onChain.cover(tx, coverage);
  return { grant, userKey };
}

function assertValid({ limitUtia, allowedApps, expiresAt }: NewGrant, now: Date): void {
  const problems: Record<string, string[]> = {};
  if (limitUtia < 1n || limitUtia > maxUtia) problems['limit_utia'] = ['must be from 1 to 9007199254740991'];
  if (allowedApps.length > appsMax) problems['allowed_apps'] = [`may hold at most ${appsMax} applications`];
  const ms = expiresAt!.getTime();
  if (!(ms > now.getTime()) || ms > now.getTime() + 10 * yearMs) {
    problems['expires_at'] = ['must be in the future, at most ten years from now'];
  }
  if (Object.keys(problems).length > 0) throw invalid('The grant is not valid', problems);
}

/** The grants of a user, newest first: all grants in force, and the latest ones that are over. */
export const listGrants = (db: Queryable, address: string): Promise<Grant[]> =>
  rows<Grant>(
    db,
    sql`select * from (select ${columns} from user_grant where address = ${address}
          order by ${isInForce} desc, created_at desc, id limit ${4 * grantsMax}) shown
        order by "createdAt" desc, id`,
  );

/**
 * Ends a grant, whatever the chain still allows; what is being deducted goes on. Repeatable. Throws GRANT_NOT_FOUND.
 */
export async function revokeGrant(tx: Connection, chain: ChainGrants, address: string, id: string): Promise<Grant> {
  await lockUser(tx, address);
  const grant = await row<Grant>(
    tx,
    sql`update user_grant set revoked_at = coalesce(revoked_at, clock_timestamp())
        where id = ${id}::uuid and address = ${address} returning ${columns}`,
  );
  if (!grant) throw notFound(GRANT_NOT_FOUND, 'There is no such grant');
  await chain.reduce(tx, address, await inForce(tx, address));
  return grant;
}

/** The grant of a key. Undefined for a key that nobody has. */
export const grantOfKey = (db: Queryable, keyHash: Buffer): Promise<Grant | undefined> =>
  row<Grant>(db, sql`select ${columns} from user_grant where key_hash = ${keyHash}`);

export const hashOf = (userKey: string): Buffer => createHash('sha256').update(userKey).digest();

/**
 * The coverage that the chain must have for a user; undefined: none is needed. The amount is what is left of all grants
 * in force, and the deductions that no block has yet. It must last until the latest grant ends, and for an hour while
 * a deduction is pending, because deductions wait for a transaction for ten minutes at most.
 */
async function inForce(tx: Connection, address: string): Promise<Coverage | undefined> {
  const totals = await row<{ amount: string | null; until: Date | null }>(
    tx,
    sql`select sum(amount)::text as amount, max(until) as until
        from (select limit_utia - spent_utia as amount, expires_at as until
              from user_grant where address = ${address} and ${isInForce}
              union all
              select amount, clock_timestamp() + interval '1 hour'
              from grant_deduction where address = ${address} and state = 'pending') wanted`,
  );
  const { amount, until } = totals!;
  return amount === null || until === null ? undefined : { amount: BigInt(amount), until };
}

/** Grants of one user change one after the other. */
async function lockUser(tx: Connection, address: string): Promise<void> {
  await execute(tx, sql`select pg_advisory_xact_lock(hashtextextended(${`grants of ${address}`}, 0))`);
}
