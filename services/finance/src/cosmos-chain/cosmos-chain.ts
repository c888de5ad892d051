import { TxBody, TxRaw } from 'cosmjs-types/cosmos/tx/v1beta1/tx';
import type { BroadcastResult, Chain, ChainAccount, ChainTransfer, FindResult } from '../chain/chain';
import { feeCollector } from '../chain/module-accounts';
import type { FoundTransaction } from './comet-node';
import type { CometNodes } from './comet-nodes';
import { readTransfers, type TransferEvent } from './transfer-events';

/** An absence counts when so many nodes, of those there are, have looked. */
const looksWanted = 2;

export interface CosmosChainOptions {
  nodes: CometNodes;
  denom: string;
  /** The prefix of all addresses. */
  prefix: string;
  /** Returns the addresses that are ours. Transfers between others are left out. */
  ours: (addresses: readonly string[]) => Promise<ReadonlySet<string>>;
}

/** A chain of the Cosmos SDK behind CometBFT nodes. */
export class CosmosChain implements Chain {
  readonly id: string;
  private readonly feeCollector: string;

  constructor(private readonly options: CosmosChainOptions) {
    this.id = options.nodes.chainId;
    this.feeCollector = feeCollector(options.prefix);
  }

  async height(): Promise<{ height: bigint; at: Date }> {
    const [first] = await this.options.nodes.ready();
    const { height, at } = first!.status;
    return { height, at };
  }

  account(address: string): Promise<ChainAccount | undefined> {
    return this.options.nodes.ask((node) => node.account(address));
  }

  balance(address: string): Promise<bigint> {
    return this.options.nodes.ask((node) => node.balance(address, this.options.denom));
  }

  /**
   * Sends to another node each time, so that one that forwards nothing cannot keep a transaction from the others. A
   * refusal is the opinion of one node, which may be behind or ask for a higher fee, so the others are asked too; it
   * counts where each has answered: one that has not may have the transaction.
   */
  async broadcast(bytes: Uint8Array): Promise<BroadcastResult> {
    const { nodes } = this.options;
    let refusal: BroadcastResult | undefined;
    let failure: unknown;
    for (const { node } of await nodes.rotated()) {
      try {
        const result = await node.broadcast(bytes);
        if (result.state === 'accepted' || result.state === 'known') return result;
        if (refusal?.state !== 'later') refusal = result;
      } catch (error) {
        failure = nodes.failed(node, error);
      }
    }
    if (refusal && (failure === undefined || refusal.state === 'later')) return refusal;
    throw failure;
  }

  /**
   * The height of an absent hash is the lower one of two nodes that have not found it, or that of the only node. It is
   * 0 when only one of several nodes has answered, because a single node may be wrong.
   */
  async find(hash: string): Promise<FindResult> {
    const { nodes } = this.options;
    const looks = Math.min(looksWanted, nodes.count);
    const absentAt: bigint[] = [];
    let failure: unknown;
    for (const { node, status } of await nodes.ready()) {
      try {
        const transaction = await node.find(hash);
        if (transaction) return await this.included(transaction);
        absentAt.push(status.height);
      } catch (error) {
        failure = nodes.failed(node, error);
      }
      if (absentAt.length === looks) return { state: 'absent', height: lowest(absentAt) };
    }
    if (absentAt.length === 0) throw failure;
    return { state: 'absent', height: 0n };
  }

  async *transfers(from: bigint, to: bigint): AsyncIterable<ChainTransfer> {
    for (let height = from; height <= to; height += 1n) yield* await this.transfersOf(height);
  }

  private async included(transaction: FoundTransaction): Promise<FindResult> {
    const { height, tx_result: result } = transaction;
    const blockTime = await this.options.nodes.ask((node) => node.blockTime(height));
    const transfers =
      result.code === 0 ? this.read(transaction).map((transfer) => toTransfer(transfer, transaction, blockTime)) : [];
    return { state: 'included', height, code: result.code, codespace: result.codespace, transfers };
  }

  private read({ tx_result: result }: Pick<FoundTransaction, 'tx_result'>): TransferEvent[] {
    return readTransfers(result.events, this.options.denom, this.feeCollector);
  }

  /** Transfers of ours in a block, from its results; only the hashes come from the index. */
  private async transfersOf(height: bigint): Promise<ChainTransfer[]> {
    const { nodes, ours } = this.options;
    const results = await nodes.ask((node) => node.blockResults(height));
    const all = results.flatMap((result, index) =>
      result.code === 0 ? this.read({ tx_result: result }).map((transfer) => ({ transfer, index })) : [],
    );
    if (all.length === 0) return [];
    const ourAddresses = await ours([...new Set(all.flatMap(({ transfer }) => [transfer.sender, transfer.recipient]))]);
    const ourTransfers = all.filter(
      ({ transfer }) => ourAddresses.has(transfer.sender) || ourAddresses.has(transfer.recipient),
    );
    if (ourTransfers.length === 0) return [];
    const blockTime = await nodes.ask((node) => node.blockTime(height));
    const transactionsByIndex = new Map<number, FoundTransaction>();
    for (const { transfer, index } of ourTransfers) {
      if (transactionsByIndex.has(index)) continue;
      for (const each of await this.search(height, transfer.recipient)) transactionsByIndex.set(each.index, each);
      // It is read again later.
      if (!transactionsByIndex.has(index))
        throw new Error(`the index of transactions does not have block ${height} yet`);
    }
    return ourTransfers.map(({ transfer, index }) => toTransfer(transfer, transactionsByIndex.get(index)!, blockTime));
  }

  private async search(height: bigint, recipient: string): Promise<FoundTransaction[]> {
    const query = `tx.height=${height} AND transfer.recipient='${recipient}'`;
    return this.options.nodes.ask((node) => node.search(query));
  }
}

const toTransfer = (
  transfer: TransferEvent,
  { hash, height, tx }: FoundTransaction,
  blockTime: Date,
): ChainTransfer => ({
  transactionHash: hash,
  height,
  at: blockTime,
  memo: memoOf(tx),
  ...transfer,
});

const lowest = (heights: readonly bigint[]): bigint =>
  heights.reduce((least, height) => (height < least ? height : least));

/** Empty when the bytes are not those of a transaction of the SDK. */
function memoOf(bytes: Uint8Array): string {
  try {
    return TxBody.decode(TxRaw.decode(bytes).bodyBytes).memo;
  } catch {
    return '';
  }
}
