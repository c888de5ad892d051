import { execute, row, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { assetKeyOf } from './assets';
import type { SettlementTransaction } from '../../networks/settlement-network';
import type { EvmProof } from './verify';

/** The transaction that was signed with a nonce, in its latest form. */
export interface StoredTransaction extends SettlementTransaction {
  nonce: bigint;
  /** The authorization was not used up to this block. */
  sinceHeight: bigint;
  isSent: boolean;
  /** How long ago it was signed. */
  ageMs: number;
}

const columns = sql`nonce, bytes, hash, since_height as "sinceHeight", sent_at is not null as "isSent",
  (extract(epoch from clock_timestamp() - signed_at) * 1000)::float8 as "ageMs"`;

/** The transactions of the account that pays the gas on a network, in the database. */
export class Transactions {
  constructor(
    private readonly pool: Pool,
    /** CAIP-2. */
    private readonly network: string,
    private readonly address: string,
  ) {}

  /**
   * Stores what `sign` makes with the next nonce. Until the end of the database transaction no other nonce is given
   * out, so that those which are stored have no gap.
   *
   * @param count Transactions of the account that are included. More than were stored here are of a time before this
   * database.
   */
  async append(
    tx: Connection,
    { count, sinceHeight }: { count: bigint; sinceHeight: bigint },
    sign: (nonce: bigint) => SettlementTransaction,
  ): Promise<SettlementTransaction> {
    const { network, address } = this;
    const { nonce } = (await row<{ nonce: bigint }>(
      tx,
      sql`insert into evm_sender as sender (network, address, next_nonce) values (${network}, ${address}, ${count + 1n})
          on conflict (network, address) do update set next_nonce = greatest(sender.next_nonce, ${count}) + 1
          returning next_nonce - 1 as nonce`,
    ))!;
    const { bytes, hash } = sign(nonce);
    await row(
      tx,
      sql`insert into evm_transaction (network, address, nonce, first_hash, since_height, bytes, hash)
          values (${network}, ${address}, ${nonce}, ${hash}, ${sinceHeight}, ${bytes}, ${hash})`,
    );
    return { bytes, hash };
  }

  /**
   * The sum of the payments in a token that may not have left the balance of the payer at a block, in units of the
   * token: payments that are being settled, and those that later blocks have moved. Failed transactions are left out,
   * because nothing sends them again.
   */
  async underWay({ network, asset, from }: EvmProof, height: bigint, tx?: Connection): Promise<bigint> {
    const total = await row<{ amount: string }>(
      tx ?? this.pool,
      sql`select coalesce(sum(amount), 0)::text as amount from claim
          where scope = ${assetKeyOf({ network, address: asset })} and key > ${`${from}|`} and key < ${`${from}}`}
            and (block_height > ${height} or (state = 'settling' and block_height is null and failed_at is null))`,
    );
    return BigInt(total!.amount);
  }

  /** Until the end of the database transaction no other payment of the payer is signed. */
  async lockPayer(tx: Connection, { network, asset, from }: EvmProof): Promise<void> {
    await row(
      tx,
      sql`select pg_advisory_xact_lock(hashtextextended(${`${assetKeyOf({ network, address: asset })}|${from}`}, 0))`,
    );
  }

  /** The transaction that began with that hash. */
  ofClaim(firstHash: string): Promise<StoredTransaction | undefined> {
    return row<StoredTransaction>(
      this.pool,
      sql`select ${columns} from evm_transaction where network = ${this.network} and first_hash = ${firstHash}`,
    );
  }

  /** The transactions with this nonce or a higher one, ordered by nonce. */
  from(nonce: bigint, limit: number): Promise<StoredTransaction[]> {
    return rows<StoredTransaction>(
      this.pool,
      sql`select ${columns} from evm_transaction
          where network = ${this.network} and address = ${this.address} and nonce >= ${nonce} order by nonce limit ${limit}`,
    );
  }

  /** Stores another one with the same nonce. False: another process has stored one. */
  async replace({ nonce, hash: before }: StoredTransaction, { bytes, hash }: SettlementTransaction): Promise<boolean> {
    const changed = await execute(
      this.pool,
      sql`update evm_transaction set bytes = ${bytes}, hash = ${hash}, signed_at = clock_timestamp(), sent_at = null
          where network = ${this.network} and address = ${this.address} and nonce = ${nonce} and hash = ${before}`,
    );
    return changed === 1;
  }

  async sent({ hash }: SettlementTransaction): Promise<void> {
    await execute(
      this.pool,
      sql`update evm_transaction set sent_at = clock_timestamp() where network = ${this.network} and hash = ${hash}`,
    );
  }

  /** Deletes those below a nonce that were signed a day ago and belong to no claim that is being settled. */
  async forget(below: bigint): Promise<void> {
    await execute(
      this.pool,
      sql`delete from evm_transaction where network = ${this.network} and address = ${this.address} and nonce < ${below}
            and signed_at < clock_timestamp() - interval '1 day'
            and not exists (select from claim where claim.network = evm_transaction.network and state = 'settling'
                              and transaction_hash = first_hash)`,
    );
  }
}
