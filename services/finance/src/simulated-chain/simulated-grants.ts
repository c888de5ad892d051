import type { ChainGrants } from '../chain/chain-grants';
import type { SimulatedNode } from './simulated-node';

/** The grants of the simulated chain: the signature of the wallet under the request stands for that of a MsgGrant. */
export const simulatedGrants = (node: SimulatedNode, grantee: string): ChainGrants => ({
  grantee,
  look: (granter) =>
    Promise.resolve({
      cover: (tx, { amount, until }) => node.setGrant(tx, { spendLimit: amount, expiresAt: until }, granter, grantee),
    }),
  reduce: (tx, granter, wanted) =>
    node.setGrant(tx, wanted && { spendLimit: wanted.amount, expiresAt: wanted.until }, granter, grantee),
  allowance: (granter) => node.allowance(granter, grantee),
  spendable: (granter) => node.balance(granter),
});
