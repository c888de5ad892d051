import { transactionHash } from '@granary/finance/chain/sign-transfer';
import { reliableChain } from '@granary/finance/simulated-chain/settings';
import { openSimulatedNode, type SimulatedNode } from '@granary/finance/simulated-chain/simulated-node';
import type { Transfer } from '@granary/shared/money/cosmos/transaction';
import { createLogger } from '@granary/shared/logger';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { newCosmosPayer, signCosmos } from '@granary/testing/cosmos-payer';
import { eventually } from '@granary/testing/eventually';
import { newApp, operatorKey, type Granary } from './granary';

/** Somebody with money on the simulated chain of a Granary, who sends transactions to a node of it himself. */
export class CosmosWallet {
  private constructor(
    private readonly pool: Pool,
    private readonly node: SimulatedNode,
    private readonly payer: ReturnType<typeof newCosmosPayer>,
    private readonly number: bigint,
    private sequence: bigint,
  ) {}

  static async open(granary: Granary, amount: number): Promise<CosmosWallet> {
    const pool = createPool({
      url: granary.databaseUrls.finance,
      size: 2,
      applicationName: 'test',
      log: createLogger('test', 'silent'),
    });
    const settings = { ...reliableChain, prefix: 'celestia', denom: 'utia', blockMs: 100, gasPrice: 0.002 };
    const node = await openSimulatedNode({ pool, settings });
    const payer = newCosmosPayer();
    const rich = await newApp(granary);
    const operator = { 'x-operator-key': operatorKey };
    await rich.call('POST', `/api/apps/${rich.appId}/faucet`, { amount: 2 * amount }, operator);
    await eventually(async () => {
      const body = { amount, payout_address: payer.address };
      return (await rich.call('POST', `/api/apps/${rich.appId}/payout/trigger`, body)).status === 202;
    });
    const { number, sequence } = await eventually(() => node.account(payer.address));
    return new CosmosWallet(pool, node, payer, number, sequence);
  }

  get address(): string {
    return this.payer.address;
  }

  /** A signed transaction with the next sequence. */
  sign(transfer: Pick<Transfer, 'outputs' | 'memo'>): Buffer {
    return this.signAtOnce([transfer])[0]!;
  }

  /** Signed transactions with the same sequence, of which a block takes one. */
  signAtOnce(transfers: ReadonlyArray<Pick<Transfer, 'outputs' | 'memo'>>): Buffer[] {
    const fee = { amount: 1_000n, gas: 150_000n };
    const { payer, number: accountNumber, sequence } = this;
    const common = { chainId: this.node.id, accountNumber, sequence, denom: 'utia', fee, timeoutHeight: 0n };
    this.sequence += 1n;
    return transfers.map((transfer) => signCosmos(payer, { ...common, ...transfer }));
  }

  /** Sends it to a node; a block has it a moment later. */
  async send(bytes: Buffer): Promise<string> {
    expect((await this.node.broadcast(bytes)).state).toBe('accepted');
    return transactionHash(bytes);
  }

  accountNumber(): bigint {
    return this.number;
  }

  close(): Promise<void> {
    return this.pool.end();
  }
}
