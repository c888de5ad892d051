import { TtlCache } from '@granary/shared/concurrency/ttl-cache';
import type { EvmProof } from './verify';
import type { EvmBlock, EvmNode } from './node';
import { balanceCall, readBalance } from './token';
import type { Transactions } from './transactions';

/**
 * A payer has too little for a payment, or too little beside what is under way, or enough, which is reserved for it
 * then.
 */
export type Funds = 'insufficient' | 'uncovered' | Reservation;

export interface Reservation {
  /** The balance of the payer after the block, in units of the token. */
  balance: bigint;
  /** Called once the payment is stored as under way, or is not made. */
  release: () => void;
}

const balances = { max: 10_000, ttlMs: 60_000 };

/**
 * Knows what payers have after a block: the node is asked once for each of them, however many payments they present.
 * One balance does not cover many payments at once, whose transactions would fail and cost gas all the same.
 */
export class PayerFunds {
  private readonly balances = new TtlCache<bigint>(balances);
  /** The sum of the payments that this process is about to sign, by token and payer. */
  private readonly reserved = new Map<string, bigint>();

  constructor(private readonly transactions: Pick<Transactions, 'underWay'>) {}

  /** Whether the payer has enough for a payment beside those that are under way. Reserves nothing. */
  async cover(node: EvmNode, block: EvmBlock, proof: EvmProof): Promise<boolean> {
    const balance = await this.balanceOf(node, block, proof);
    const value = BigInt(proof.value);
    return balance >= value && balance >= value + (await this.transactions.underWay(proof, block.height));
  }

  async reserve(node: EvmNode, block: EvmBlock, proof: EvmProof): Promise<Funds> {
    const payer = payerOf(proof);
    const value = BigInt(proof.value);
    const balance = await this.balanceOf(node, block, proof);
    if (balance < value) return 'insufficient';
    const underWay = await this.transactions.underWay(proof, block.height);
    const reserved = this.reserved.get(payer) ?? 0n;
    if (balance < value + underWay + reserved) return 'uncovered';
    this.reserved.set(payer, reserved + value);
    return { balance, release: () => this.release(payer, value) };
  }

  private async balanceOf(node: EvmNode, block: EvmBlock, proof: EvmProof): Promise<bigint> {
    const { asset, from } = proof;
    const balance = await this.balances.get(`${block.hash}|${payerOf(proof)}`, async () =>
      readBalance(await node.call({ to: asset, data: balanceCall(from) }, block.height)),
    );
    return balance!;
  }

  private release(payer: string, value: bigint): void {
    const left = (this.reserved.get(payer) ?? 0n) - value;
    if (left > 0n) this.reserved.set(payer, left);
    else this.reserved.delete(payer);
  }
}

const payerOf = ({ asset, from }: EvmProof): string => `${asset}|${from}`;
