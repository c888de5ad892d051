import { unavailable } from '@granary/shared/errors';
import { newDocumentId, newTicket } from '@granary/shared/ids';
import { execute, row, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import type { SettlementTransaction } from '../networks/settlement-network';
import type { VerifiedPayment } from '../verify/verified-payment';
import {
  columns,
  toClaim,
  type Claim,
  type ClaimConflict,
  type ClaimedPurchase,
  type ClaimRow,
  type Inclusion,
  type NetworkCount,
  type TakenClaim,
} from './claim';

/**
 * Payments of one payer that are under way on a network at a time: whose balance covers one may sign any number of
 * them.
 */
const underWayMax = 100;

/** How long a process has a claim to itself, unless it renews that; two that work on one do no harm. */
const usualOwnedMs = 5_000;

/** The most attempts to store a claim. Another attempt is made when the conflicting claim has ended since. */
const takeAttemptsMax = 5;

/** A block has the transfer; see `isMoved`. */
const isMovedInSql = sql`(state = 'settled' or (state = 'settling' and included_at is not null))`;

/**
 * A failed transaction costs this service gas: a payer whose transactions fail has one payment under way beside them,
 * and none once so many have failed.
 */
const failuresMax = 5;

const isPayerBusy = (network: string, payer: string): Sql => sql`(
  select count(*) filter (where failed_at is null and included_at is null)
      >= case count(failed_at) when 0 then ${underWayMax}::int else 1 end
    or count(failed_at) >= ${failuresMax}::int
  from claim where network = ${network} and payer = ${payer} and state in ('claimed', 'settling'))`;

/** The claims of payments, in the database. */
export class Claims {
  private readonly ownedUntil: Sql;

  /** @param owner This process. */
  constructor(
    private readonly pool: Pool,
    private readonly owner: string,
    ownedMs = usualOwnedMs,
  ) {
    this.ownedUntil = sql`clock_timestamp() + ${ownedMs} * interval '1 millisecond'`;
  }

  /** Stores a claim, owned by this process, or finds the one that the payment has, or says why there is none. */
  async take(verified: VerifiedPayment, purchase: ClaimedPurchase): Promise<TakenClaim | ClaimConflict> {
    for (let attempt = 1; attempt <= takeAttemptsMax; attempt += 1) {
      const made = await this.insert(verified, purchase);
      if (made) return { claim: made, isNew: true };
      const claim = await this.find(verified.scope, verified.key);
      if (claim) return { claim };
      const conflict = await this.conflictOf(verified, purchase);
      if (conflict) return conflict;
      // The conflicting claims have ended since, or were refused.
    }
    throw unavailable('Other payments are presented for the same at the moment');
  }

  private async insert(verified: VerifiedPayment, purchase: ClaimedPurchase): Promise<Claim | undefined> {
    const { appId, requestHash, quoteId, amountUtia, appSharePpm, network, asset, amount } = purchase;
    const { scope, key, payer, proof, validUntilSeconds } = verified;
    const [made] = await this.read(
      sql`insert into claim (id, ticket_id, scope, key, app_id, request_hash, quote_id, amount_utia, app_share_ppm, network,
            asset, amount, payer, proof, valid_until, state, owner, owner_until, fingerprint, identifier)
          select ${newDocumentId()}, ${newTicket('p', 0n)}, ${scope}, ${key}, ${appId}, ${requestHash}, ${quoteId},
            ${amountUtia}, ${appSharePpm}, ${network}, ${asset}, ${amount.toString()}::numeric, ${payer},
            ${JSON.stringify(proof)}, to_timestamp(${validUntilSeconds}), 'claimed', ${this.owner}, ${this.ownedUntil},
            ${purchase.fingerprint}, ${purchase.identifier}
          where not ${isPayerBusy(network, payer)}
          on conflict do nothing returning ${columns}`,
    );
    return made;
  }

  private async conflictOf({ payer }: VerifiedPayment, purchase: ClaimedPurchase): Promise<ClaimConflict | undefined> {
    const { appId, quoteId, identifier, network } = purchase;
    const result = await row<{ conflict: ClaimConflict | null }>(
      this.pool,
      sql`select case
            when ${isPayerBusy(network, payer)} then 'payer_busy'
            when exists (select from claim where app_id = ${appId} and identifier = ${identifier}) then 'identifier_used'
            when exists (select from claim where quote_id = ${quoteId}) then 'quote_used'
          end as conflict`,
    );
    return result!.conflict ?? undefined;
  }

  async find(scope: string, key: string): Promise<Claim | undefined> {
    return (await this.read(sql`select ${columns} from claim where scope = ${scope} and key = ${key}`))[0];
  }

  async byId(id: string): Promise<Claim | undefined> {
    return (await this.read(sql`select ${columns} from claim where id = ${id}`))[0];
  }

  async byTicket(ticketId: string): Promise<Claim | undefined> {
    return (await this.read(sql`select ${columns} from claim where ticket_id = ${ticketId}`))[0];
  }

  /** The claim of a payment as it was presented before for the same request. */
  async byFingerprint(fingerprint: Buffer, appId: string, requestHash: Buffer): Promise<Claim | undefined> {
    const claims = await this.read(
      sql`select ${columns} from claim
          where fingerprint = ${fingerprint} and app_id = ${appId} and request_hash = ${requestHash}
            and (state <> 'refused' or granted_at is not null)`,
    );
    return claims[0];
  }

  /** The claim of the payment that came with the identifier first. */
  async byIdentifier(appId: string, identifier: Buffer): Promise<Claim | undefined> {
    return (
      await this.read(sql`select ${columns} from claim where app_id = ${appId} and identifier = ${identifier}`)
    )[0];
  }

  /** The claim if it is still to be settled and no other process owns it; it is owned by this one then. */
  async acquire(id: string): Promise<Claim | undefined> {
    const owned = await this.read(
      sql`update claim set owner = ${this.owner}, owner_until = ${this.ownedUntil}
          where id = ${id} and state in ('claimed', 'settling')
            and (owner = ${this.owner} or owner is null or owner_until < clock_timestamp())
          returning ${columns}`,
    );
    return owned[0];
  }

  /** Claims on these networks that may have been sent, and that no process owns. */
  async unfinished(limit: number, networks: readonly string[]): Promise<string[]> {
    const claims = await rows<{ id: string }>(
      this.pool,
      sql`select id from claim
          where (state = 'settling' or (state = 'claimed' and valid_until < clock_timestamp()))
            and state in ('claimed', 'settling') and owner_until < clock_timestamp() and network = any(${networks}::text[])
          order by owner_until limit ${limit}`,
    );
    return claims.map(({ id }) => id);
  }

  /** How many payments may have been sent and have not ended, on networks other than these. */
  unsettledElsewhere(networks: readonly string[]): Promise<NetworkCount[]> {
    return rows<NetworkCount>(
      this.pool,
      sql`select network, count(*) as count from claim
          where state = 'settling' and network <> all(${networks}::text[])
          group by network order by network`,
    );
  }

  /**
   * Signs the transaction and stores it before it is sent, both or neither. Undefined: another process owns the claim.
   */
  prepare(
    id: string,
    sign: (tx: Connection) => Promise<SettlementTransaction>,
  ): Promise<SettlementTransaction | undefined> {
    return retriedTransaction(this.pool, async (tx) => {
      const owned = await row(
        tx,
        sql`select 1 from claim where id = ${id} and state = 'claimed' and owner = ${this.owner} for update`,
      );
      if (!owned) return undefined;
      const transaction = await sign(tx);
      await row(
        tx,
        sql`update claim set state = 'settling', transaction_bytes = ${transaction.bytes},
              transaction_hash = ${transaction.hash}, updated_at = clock_timestamp() where id = ${id}`,
      );
      return transaction;
    });
  }

  /** The network has the transaction, and no block yet. */
  sent(id: string): Promise<boolean> {
    return this.change(id, sql`sent_at = clock_timestamp()`, sql`state = 'settling' and sent_at is null`);
  }

  /** A block has the transfer, which others have to follow. */
  included(id: string, { hash, height, at: includedAt }: Inclusion): Promise<boolean> {
    return this.change(
      id,
      sql`included_at = ${includedAt}, included_hash = ${hash}, block_height = ${height}`,
      sql`state = 'settling' and (included_hash, block_height) is distinct from (${hash}, ${height}::bigint)`,
    );
  }

  /**
   * The block that had the transfer is no longer one of the chain. What an answer has said of it stays as it was said.
   */
  dropped(id: string): Promise<boolean> {
    return this.change(
      id,
      sql`block_height = null, included_at = case when granted_at is not null then included_at end,
          included_hash = case when granted_at is not null then included_hash end`,
      sql`state = 'settling' and block_height is not null`,
    );
  }

  /** The transaction was included and has moved nothing. */
  failed(id: string): Promise<boolean> {
    return this.change(id, sql`failed_at = clock_timestamp()`, sql`state = 'settling' and failed_at is null`);
  }

  /** Stores that the block of the transfer is final: enough blocks follow it. Another owner may have found the same. */
  settled(id: string, { hash, height, at: includedAt }: Inclusion): Promise<boolean> {
    return this.change(
      id,
      sql`state = case when granted_at is null then 'settled' else 'granted' end, transaction_hash = ${hash},
          included_at = ${includedAt}, included_hash = ${hash}, block_height = ${height}, settled_at = ${includedAt}`,
      sql`state = 'settling'`,
    );
  }

  /**
   * The payment is worth nothing as things are. Its quote can be paid by another one, and it may be presented anew,
   * unless what it pays for was given before the block that had it fell out of the chain.
   */
  refused(id: string, because: string): Promise<boolean> {
    return this.change(
      id,
      sql`state = 'refused', refused_because = ${because},
          quote_id = case when granted_at is not null then quote_id end,
          identifier = case when granted_at is not null then identifier end,
          key = case when granted_at is not null then key else key || '|' || id end`,
      sql`state in ('claimed', 'settling') and owner = ${this.owner}`,
    );
  }

  /** Stores that the work for a payment has begun, if the payment's money was moved. */
  begun(id: string): Promise<boolean> {
    return this.change(id, sql`begun_at = clock_timestamp()`, sql`${isMovedInSql} and begun_at is null`);
  }

  /** Redeems a payment whose money was moved; the table calls it granted. True for one caller only. */
  redeem(id: string, answer: Buffer | null): Promise<boolean> {
    return this.change(
      id,
      sql`state = case state when 'settled' then 'granted' else state end, granted_at = clock_timestamp(), answer = ${answer}`,
      sql`${isMovedInSql} and granted_at is null`,
    );
  }

  /** Settled payments whose amounts the ledger does not have yet, the oldest first. */
  uncredited(limit: number): Promise<Claim[]> {
    return this.read(
      sql`select ${columns} from claim where credited_at is null and settled_at is not null and app_id is not null
          order by settled_at limit ${limit}`,
    );
  }

  async credited(ids: readonly string[]): Promise<void> {
    await execute(this.pool, sql`update claim set credited_at = clock_timestamp() where id = any(${ids}::uuid[])`);
  }

  /**
   * Deletes claims whose payments could not be settled any more for a day, of settled ones a day after that: one that
   * was settled late can still be presented. Returns how many.
   */
  forget(limit: number): Promise<number> {
    return execute(
      this.pool,
      sql`delete from claim where id in (
            select id from claim
            where valid_until < clock_timestamp() - interval '1 day' and state in ('claimed', 'settled', 'granted', 'refused')
              and (credited_at is not null or settled_at is null or app_id is null)
              and (settled_at is null or updated_at < clock_timestamp() - interval '1 day')
            order by valid_until limit ${limit} for update skip locked)`,
    );
  }

  /**
   * Deletes claims that were refused an hour ago: they cost nothing to make, and mean nothing any more. Returns how
   * many.
   */
  forgetRefused(limit: number): Promise<number> {
    return execute(
      this.pool,
      sql`delete from claim where id in (
            select id from claim
            where state = 'refused' and granted_at is null and updated_at < clock_timestamp() - interval '1 hour'
            order by updated_at limit ${limit} for update skip locked)`,
    );
  }

  private async change(id: string, set: Sql, condition: Sql): Promise<boolean> {
    const changed = await execute(
      this.pool,
      sql`update claim set ${set}, updated_at = clock_timestamp() where id = ${id} and ${condition}`,
    );
    return changed === 1;
  }

  private async read(statement: Sql): Promise<Claim[]> {
    return (await rows<ClaimRow>(this.pool, statement)).map(toClaim);
  }
}
