import { z } from 'zod';
import { NodeFailure, type JsonRpc } from '@granary/shared/http/json-rpc';
import type { Block, NetworkNode } from '../../networks/node-pool';

/** `confirmed`: two thirds of the stake have voted for its block. `finalized`: and for 31 blocks behind it. */
export type Commitment = 'confirmed' | 'finalized';

/** A transaction that a block has. */
export interface TransactionStatus {
  slot: bigint;
  hasSucceeded: boolean;
  commitment: 'processed' | Commitment;
}

const whole = z.int().min(0);
const valueOf = <T>(schema: z.ZodType<T>) => z.object({ value: schema }).transform(({ value }) => value);
const statusSchema = z.object({
  slot: whole,
  err: z.unknown(),
  confirmationStatus: z.enum(['processed', 'confirmed', 'finalized']),
});
const simulationSchema = valueOf(z.object({ err: z.unknown(), logs: z.array(z.string()).nullish() }));

/** One node of a network of Solana. Its methods throw a NodeFailure, or an RpcError when the node refuses. */
export class SolanaNode implements NetworkNode<Block> {
  constructor(private readonly rpc: JsonRpc) {}

  get name(): string {
    return this.rpc.name;
  }

  /** CAIP-2: the start of the hash of the first block. */
  async networkId(): Promise<string> {
    return `solana:${(await this.rpc.call('getGenesisHash', [], z.string())).slice(0, 32)}`;
  }

  async latest(): Promise<Block> {
    return { height: BigInt(await this.rpc.call('getBlockHeight', [{ commitment: 'confirmed' }], whole)) };
  }

  /** The balance of an account, in lamports. */
  async balance(address: string): Promise<bigint> {
    return BigInt(await this.rpc.call('getBalance', [address, { commitment: 'confirmed' }], valueOf(whole)));
  }

  /** Simulates a transaction, whoever signs it. Undefined if it would succeed, else the chain's error as JSON. */
  async simulate(transaction: string): Promise<string | undefined> {
    const options = { encoding: 'base64', commitment: 'confirmed', sigVerify: false };
    const { err } = await this.rpc.call('simulateTransaction', [transaction, options], simulationSchema);
    return err == null ? undefined : JSON.stringify(err);
  }

  /** The node forwards it to those that make the next blocks, whether it is valid or not. */
  async send(transaction: Buffer): Promise<void> {
    const options = { encoding: 'base64', skipPreflight: true, maxRetries: 0 };
    await this.rpc.call('sendTransaction', [transaction.toString('base64'), options], z.string());
  }

  /** Undefined: the node knows of no block that has it. */
  async status(signature: string): Promise<TransactionStatus | undefined> {
    const options = { searchTransactionHistory: true };
    const schema = valueOf(z.array(statusSchema.nullable()).length(1));
    const [status] = await this.rpc.call('getSignatureStatuses', [[signature], options], schema);
    if (!status) return undefined;
    return { slot: BigInt(status.slot), hasSucceeded: status.err == null, commitment: status.confirmationStatus };
  }

  /** Whether a block that follows the last finalized one may have a transaction that names this block. */
  isBlockhashValid(blockhash: string): Promise<boolean> {
    return this.rpc.call('isBlockhashValid', [blockhash, { commitment: 'finalized' }], valueOf(z.boolean()));
  }

  /** The time of the last finalized block, in seconds since 1970. */
  async finalizedTimeSeconds(): Promise<number> {
    const slot = await this.rpc.call('getSlot', [{ commitment: 'finalized' }], whole);
    const time = await this.rpc.call('getBlockTime', [slot], z.number().nullable());
    if (time === null) throw new NodeFailure(`${this.name} does not know the time of the slot ${slot}`);
    return time;
  }
}
