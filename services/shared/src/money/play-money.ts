/**
 * The simulated EVM network of x402, by its CAIP-2 name. It takes real signatures, and moves play money. Its number
 * spells `gran` and is of no chain that there is, so that no payment for it means anything elsewhere.
 */
export const playMoneyNetwork = 'eip155:1735549294';

/** Begins the ids of simulated Cosmos chains, and no others. */
export const simulatedChainPrefix = 'granary-simulated-';
