import { z } from 'zod';
import { NodeFailure, RpcError, type JsonRpc } from '@granary/shared/http/json-rpc';
import type { NetworkNode } from '../../networks/node-pool';
import type { EvmLog } from './token';

export interface EvmBlock {
  height: bigint;
  hash: string;
  timestampSeconds: bigint;
  /** The base fee in wei for a unit of gas. */
  baseFee: bigint;
}

export interface EvmReceipt {
  hasSucceeded: boolean;
  height: bigint;
  blockHash: string;
  logs: EvmLog[];
}

export interface ContractCall {
  from?: string;
  to: string;
  data: string;
}

/** The fees for a unit of gas, in wei. */
export interface Fees {
  maxFeePerGas: bigint;
  maxPriorityFeePerGas: bigint;
}

const quantity = z
  .string()
  .regex(/^0x[0-9a-fA-F]{1,64}$/)
  .transform((text) => BigInt(text));
const hex = z.string().regex(/^0x([0-9a-fA-F]{2})*$/);
const hash = hex.transform((text) => text.toLowerCase());
const blockSchema = z.object({ number: quantity, hash, timestamp: quantity, baseFeePerGas: quantity.optional() });
const logSchema = z
  .object({
    address: hash,
    topics: z.array(hash),
    data: hex,
    logIndex: quantity,
    transactionHash: hash,
    blockHash: hash,
  })
  .transform(({ logIndex: index, ...log }): EvmLog => ({ ...log, index }));
const receiptSchema = z
  .object({ status: quantity, blockNumber: quantity, blockHash: hash, logs: z.array(logSchema) })
  .transform(({ status, blockNumber: height, blockHash, logs }): EvmReceipt => ({
    hasSucceeded: status === 1n,
    height,
    blockHash,
    logs,
  }));

const tag = (height: bigint): string => `0x${height.toString(16)}`;

/** One node of an EVM network. Its methods throw a NodeFailure, or an RpcError when the node refuses. */
export class EvmNode implements NetworkNode<EvmBlock> {
  constructor(private readonly rpc: JsonRpc) {}

  get name(): string {
    return this.rpc.name;
  }

  async networkId(): Promise<string> {
    return `eip155:${await this.rpc.call('eth_chainId', [], quantity)}`;
  }

  latest(): Promise<EvmBlock> {
    return this.blockAt('latest');
  }

  block(height: bigint): Promise<EvmBlock> {
    return this.blockAt(tag(height));
  }

  /** The answer of a contract after a block. */
  call(call: ContractCall, height: bigint): Promise<string> {
    return this.rpc.call('eth_call', [call, tag(height)], hex);
  }

  /**
   * The gas that a call takes after the latest block, not after what is pending. An RpcError says that it would fail,
   * see `isRevert`.
   */
  estimateGas(call: ContractCall): Promise<bigint> {
    return this.rpc.call('eth_estimateGas', [call, 'latest'], quantity);
  }

  /** The fees for which a transaction is included soon after a block. */
  async fees({ baseFee }: EvmBlock): Promise<Fees> {
    const maxPriorityFeePerGas = await this.rpc.call('eth_maxPriorityFeePerGas', [], quantity);
    return { maxFeePerGas: 2n * baseFee + maxPriorityFeePerGas, maxPriorityFeePerGas };
  }

  /** The balance of an account, in wei. */
  balance(address: string): Promise<bigint> {
    return this.rpc.call('eth_getBalance', [address, 'latest'], quantity);
  }

  /** How many transactions of an account are included, up to a block or by now: the nonce of the next one. */
  transactionCount(address: string, height?: bigint): Promise<bigint> {
    return this.rpc.call('eth_getTransactionCount', [address, height === undefined ? 'latest' : tag(height)], quantity);
  }

  /** Reads the logs of any of the contracts. A topic may be a list, of which a log has one. */
  logs(address: readonly string[], topics: unknown[], from: bigint, to: bigint): Promise<EvmLog[]> {
    return this.rpc.call(
      'eth_getLogs',
      [{ address, topics, fromBlock: tag(from), toBlock: tag(to) }],
      z.array(logSchema),
    );
  }

  /** Undefined: the transaction is not included. */
  async receipt(hash: string): Promise<EvmReceipt | undefined> {
    return (await this.rpc.call('eth_getTransactionReceipt', [hash], receiptSchema.nullable())) ?? undefined;
  }

  async send(bytes: Buffer): Promise<void> {
    await this.rpc.call('eth_sendRawTransaction', [`0x${bytes.toString('hex')}`], hex);
  }

  private async blockAt(blockTag: string): Promise<EvmBlock> {
    const block = await this.rpc.call('eth_getBlockByNumber', [blockTag, false], blockSchema.nullable());
    if (!block) throw new NodeFailure(`${this.name} does not have the block ${blockTag}`);
    const { number: height, hash, timestamp: timestampSeconds, baseFeePerGas: baseFee } = block;
    if (baseFee === undefined) throw new NodeFailure(`${this.name} is of a network without EIP-1559`);
    return { height, hash, timestampSeconds, baseFee };
  }
}

/**
 * Whether the node says that a contract refuses a call. The code is that of EIP-1474; older nodes have it in the text
 * only.
 */
export const isRevert = (error: unknown): error is RpcError =>
  error instanceof RpcError && (error.code === 3 || /revert/i.test(error.message));
