import { keccak_256 } from '@noble/hashes/sha3';
import { row, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import type {
  FindResult,
  Plan,
  SendResult,
  Settled,
  SettlementNetwork,
  SettlementTransaction,
} from '../../networks/settlement-network';
import { playMoneyNetwork } from '@granary/shared/money/play-money';
import type { PaymentProblem, UnsentPayment } from '../../networks/quoted-network';
import { spelledOnce } from '../evm/address';
import { expired, insufficientFunds } from '../evm/problems';
import type { EvmProof } from '../evm/verify';

/** The initial balance of each account, in units of the token. */
const initialBalance = 1_000_000_000n;

interface Transfer {
  hash: string;
  height: bigint;
  at: Date;
}

/**
 * The simulated EVM network. It executes an authorization as the token would: within its time, once for each nonce, and
 * up to the balance of the account; and includes what it executes at once. Whoever sends to it has verified the
 * signature.
 */
export class SimulatedEvm implements SettlementNetwork {
  readonly id = playMoneyNetwork;
  readonly keepsQuotesSecret = true;
  readonly tooLongReason = expired.reason;

  constructor(
    private readonly pool: Pool,
    private readonly now: () => Date,
  ) {}

  spelledOnce(address: string): string {
    return spelledOnce(address);
  }

  isOpen(): boolean {
    return true;
  }

  plan({ proof }: Settled): Promise<Plan> {
    const bytes = Buffer.from(JSON.stringify(proof));
    const transaction = { bytes, hash: `0x${Buffer.from(keccak_256(bytes)).toString('hex')}` };
    return Promise.resolve({ state: 'ready', sign: () => Promise.resolve(transaction) });
  }

  async send({ proof }: Settled, { hash }: SettlementTransaction): Promise<SendResult> {
    const { from, to, value, nonce, validAfter, validBefore } = proof as EvmProof;
    return retriedTransaction(this.pool, async (tx): Promise<SendResult> => {
      // Two transfers of an account follow one another, so that its balance is enough for both.
      await row(tx, sql`select pg_advisory_xact_lock(hashtextextended(${from}, 0))`);
      if (await this.transferOf(from, nonce, tx)) return { state: 'sent' };
      const nowSeconds = BigInt(Math.floor(this.now().getTime() / 1_000));
      if (nowSeconds <= BigInt(validAfter) || nowSeconds >= BigInt(validBefore)) {
        return { state: 'refused', ...expired };
      }
      if ((await this.balanceOf(from, tx)) < BigInt(value)) return { state: 'refused', ...insufficientFunds };
      await row(
        tx,
        sql`insert into simulated_evm_transfer (authorizer, nonce, hash, recipient, value)
            values (${from}, ${nonce}, ${hash}, ${to}, ${value}::numeric)`,
      );
      return { state: 'sent' };
    });
  }

  async findProblem({ proof }: UnsentPayment): Promise<PaymentProblem | undefined> {
    const { from, nonce, value } = proof as EvmProof;
    if (await this.transferOf(from, nonce, this.pool)) return nonceUsed;
    return (await this.balanceOf(from, this.pool)) < BigInt(value) ? insufficientFunds : undefined;
  }

  async find({ proof, validUntil }: Settled): Promise<FindResult> {
    const { from, nonce } = proof as EvmProof;
    const transfer = await this.transferOf(from, nonce, this.pool);
    if (transfer) return { state: 'included', isFinal: true, ...transfer };
    return this.now() < validUntil ? { state: 'absent' } : { ...expired, state: 'impossible' };
  }

  private async balanceOf(from: string, db: Parameters<typeof row>[0]): Promise<bigint> {
    const total = await row<{ spent: string }>(
      db,
      sql`select coalesce(sum(value), 0)::text as spent from simulated_evm_transfer where authorizer = ${from}`,
    );
    return initialBalance - BigInt(total!.spent);
  }

  private transferOf(from: string, nonce: string, db: Parameters<typeof row>[0]): Promise<Transfer | undefined> {
    return row<Transfer>(
      db,
      sql`select hash, height, included_at as at from simulated_evm_transfer
          where authorizer = ${from} and nonce = ${nonce}`,
    );
  }
}

const nonceUsed: PaymentProblem = {
  reason: 'invalid_exact_evm_nonce_already_used',
  message: 'The authorization was used before',
};
