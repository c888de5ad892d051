/** An account of a chain; it exists once money was sent to its address. */
export interface ChainAccount {
  number: bigint;
  /** The sequence number of the account's next transaction. */
  sequence: bigint;
  /** The height of the node when it looked. */
  height: bigint;
}

/** Money that one included transaction moved from an address to another; amounts in the smallest unit. */
export interface ChainTransfer {
  transactionHash: string;
  /** Its place among the events of the transaction: with the hash it identifies the transfer. */
  eventIndex: number;
  height: bigint;
  /** The time of the block. */
  at: Date;
  sender: string;
  recipient: string;
  /** The amount as the chain has it. It may need more than 64 bits; see `storedAmount`. */
  amount: bigint;
  memo: string;
}

const storedAmountMax = 2n ** 63n - 1n;

/**
 * An amount of the chain as it is stored and compared: what is beyond 2^63-1 counts as 2^63-1. No such amount is ever
 * credited, because the ledger refuses what is beyond 2^53-1.
 */
export const storedAmount = (amount: bigint): bigint => (amount > storedAmountMax ? storedAmountMax : amount);

/**
 * The answer of a node to a transaction. `known`: it is in the node's mempool or in a block already. `later`: the
 * mempool is full, so the same bytes may be sent again. `refused`: these bytes are invalid, with a code of the Cosmos
 * SDK.
 */
export type BroadcastResult =
  | { state: 'accepted' }
  | { state: 'known' }
  | { state: 'later' }
  | { state: 'refused'; codespace: string; code: number };

/** The outcome of a transaction in its block: code 0 if it succeeded, else one of a module of the chain. */
export interface Outcome {
  code: number;
  /** The module, as codes are only unique within one; `sdk` for those of the Cosmos SDK. */
  codespace: string;
}

/**
 * A transaction in a block, code 0 if it succeeded; or the height of the node when it did not find the hash. A node may
 * not have indexed its latest blocks, so a hash that it does not find may be in a block nevertheless.
 */
export type FindResult =
  ({ state: 'included'; height: bigint; transfers: ChainTransfer[] } & Outcome) | { state: 'absent'; height: bigint };

/**
 * A chain as finance sees it. An error thrown by any function means that the outcome is unknown, never that it failed.
 */
export interface Chain {
  /** The chain id that transactions are signed for. */
  readonly id: string;
  /** The latest block. */
  height(): Promise<{ height: bigint; at: Date }>;
  account(address: string): Promise<ChainAccount | undefined>;
  balance(address: string): Promise<bigint>;
  /** Sends a signed transaction. It may be called any number of times with the same bytes. */
  broadcast(bytes: Uint8Array): Promise<BroadcastResult>;
  /** Looks for a transaction by the hash of its bytes: SHA-256 as upper-case hex. */
  find(hash: string): Promise<FindResult>;
  /** All transfers in the blocks from one height to another, both included, in their order. */
  transfers(from: bigint, to: bigint): AsyncIterable<ChainTransfer>;
}
