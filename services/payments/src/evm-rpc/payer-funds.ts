import { TtlCache } from '@granary/shared/concurrency/ttl-cache';
import type { EvmProof } from '../verify/evm-exact';
import type { EvmBlock, EvmNode } from './evm-node';
import { balanceCall, readBalance } from './token';
import type { Transactions } from './transactions';

/** What a payer has for a payment: nothing like it, too little beside what is under way, or enough, which is promised to it then. */
export type Funds = 'insufficient' | 'uncovered' | Promised;

export interface Promised {
  /** In units of the token, after the block. */
  balance: bigint;
  /** Called once the payment is stored as under way, or is not made. */
  release: () => void;
}

const balances = { max: 10_000, ttlMs: 60_000 };

/**
 * What payers have after a block: the node is asked once for each of them, however many payments they present. One balance does not cover
 * many payments at once, whose transactions would fail and cost gas all the same.
 */
export class PayerFunds {
  private readonly balances = new TtlCache<bigint>(balances);
  /** To payments that this process is about to sign. */
  private readonly promised = new Map<string, bigint>();

  constructor(private readonly transactions: Pick<Transactions, 'underWay'>) {}

  async promise(node: EvmNode, block: EvmBlock, proof: EvmProof): Promise<Funds> {
    const { asset, from } = proof;
    const payer = `${asset}|${from}`;
    const value = BigInt(proof.value);
    const balance = (await this.balances.get(`${block.hash}|${payer}`, async () =>
      readBalance(await node.call({ to: asset, data: balanceCall(from) }, block.height)),
    ))!;
    if (balance < value) return 'insufficient';
    const underWay = await this.transactions.underWay(proof, block.height);
    const promised = this.promised.get(payer) ?? 0n;
    if (balance < value + underWay + promised) return 'uncovered';
    this.promised.set(payer, promised + value);
    return { balance, release: () => this.release(payer, value) };
  }

  private release(payer: string, value: bigint): void {
    const left = (this.promised.get(payer) ?? 0n) - value;
    if (left > 0n) this.promised.set(payer, left);
    else this.promised.delete(payer);
  }
}
