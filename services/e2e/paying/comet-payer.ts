import type { SimulatedNode } from '@granary/finance/simulated-chain/simulated-node';
import type { Transfer } from '@granary/shared/money/cosmos/transaction';
import { newCosmosPayer, signCosmos, type CosmosPayer } from '@granary/testing/cosmos-payer';
import type { Requirement } from '@granary/testing/x402-client';

/** An account of a chain behind nodes of CometBFT, whose owner signs, and sends where it pays to, by himself. */
export class CometPayer {
  private sequence = 0n;

  private constructor(
    private readonly chainId: string,
    private readonly nodeUrl: string,
    private readonly payer: CosmosPayer,
    readonly accountNumber: bigint,
  ) {}

  static async open(node: SimulatedNode, nodeUrl: string, amount: bigint): Promise<CometPayer> {
    const payer = newCosmosPayer();
    await node.fund(payer.address, amount);
    const { number } = (await node.account(payer.address))!;
    return new CometPayer(node.id, nodeUrl, payer, number);
  }

  get address(): string {
    return this.payer.address;
  }

  /**
   * What pays for a requirement, with the next sequence; with `changes`, which are signed too, that sequence is not
   * used up.
   */
  sign({ payTo, maxAmountRequired, amount, extra }: Requirement, changes?: Partial<Transfer>): Buffer {
    const { chainId, accountNumber, sequence } = this;
    if (!changes) this.sequence += 1n;
    return signCosmos(this.payer, {
      chainId,
      accountNumber,
      sequence,
      denom: 'utia',
      memo: extra.quoteId,
      timeoutHeight: 0n,
      fee: { amount: 1_000n, gas: 150_000n },
      outputs: [{ address: payTo, amount: BigInt(maxAmountRequired ?? amount!) }],
      ...changes,
    });
  }

  /** Sends a transaction to a node by JSON-RPC, as wallets do, and returns its hash. */
  async send(transaction: Buffer): Promise<string> {
    const params = { tx: transaction.toString('base64') };
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'broadcast_tx_sync', params });
    const { result } = (await (await fetch(this.nodeUrl, { method: 'POST', body })).json()) as {
      result: { code: number; hash: string };
    };
    expect(result.code).toBe(0);
    return result.hash;
  }
}
