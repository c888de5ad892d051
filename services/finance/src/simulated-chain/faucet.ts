import { forbidden, invalid } from '@granary/shared/errors';
import type { Connection } from '@granary/shared/postgres/pool';
import type { SimulatedNode } from './simulated-node';

/** Gives money of the simulated chain away. */
export interface Faucet {
  /** Throws FORBIDDEN when it is closed, and VALIDATION_FAILED for more than it gives at a time. */
  check(amount: bigint): void;
  /** Sends the amount to an address, in a block, and returns the hash of the transaction. */
  send(tx: Connection, address: string, amount: bigint): Promise<string>;
}

/** The faucet of a node; with a `max` of 0 it is closed. */
export const openFaucet = (node: SimulatedNode, max: number): Faucet => ({
  check: (amount) => {
    if (max === 0) throw forbidden('The faucet is closed');
    if (amount > BigInt(max)) {
      throw invalid('The faucet does not give so much', { amount: [`must be at most ${max}`] });
    }
  },
  send: (tx, address, amount) => node.fundIn(tx, address, amount),
});
