/** How the simulated chain behaves. Probabilities are from 0 to 1. */
export interface SimulatedChainSettings {
  /** The prefix of all addresses. */
  prefix: string;
  denom: string;
  /** The time between two blocks; 0: blocks are produced by `produceBlock` only. */
  blockMs: number;
  /** The lowest price of gas that is accepted, in the denomination. */
  gasPrice: number;
  memoBytesMax: number;
  /** The probability that an accepted transaction is lost before it reaches the mempool. */
  loss: number;
  /**
   * The probability, for each block, that a transaction that is due is dropped from the mempool instead of included.
   */
  eviction: number;
  /** A transaction is included at most this many blocks late. */
  delayBlocks: number;
  /** The probability that the answer to a broadcast is lost: the call throws, whatever became of the transaction. */
  answerLoss: number;
  /** Transactions are found by hash at most this many blocks late. */
  indexLagBlocks: number;
}

export const reliableChain = {
  memoBytesMax: 256,
  loss: 0,
  eviction: 0,
  delayBlocks: 0,
  answerLoss: 0,
  indexLagBlocks: 0,
} as const satisfies Partial<SimulatedChainSettings>;

/** The gas that a transfer to this number of recipients uses. */
export const gasUsed = (recipients: number, isGranted = false): bigint =>
  80_000n + (isGranted ? 45_000n : 20_000n) * BigInt(recipients);
