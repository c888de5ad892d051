import { playMoneyNetwork } from '@granary/shared/money/play-money';

/**
 * The names of networks in version 1 of x402, by their CAIP-2 names; of the official clients, then of the published
 * client.
 */
const officialNames: ReadonlyArray<readonly [caip2: string, name: string]> = [
  ['eip155:1', 'ethereum'],
  ['eip155:11155111', 'sepolia'],
  ['eip155:8453', 'base'],
  ['eip155:84532', 'base-sepolia'],
  ['eip155:137', 'polygon'],
  ['eip155:80002', 'polygon-amoy'],
  ['eip155:43114', 'avalanche'],
  ['eip155:43113', 'avalanche-fuji'],
  ['eip155:143', 'monad'],
  ['solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp', 'solana'],
  ['solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1', 'solana-devnet'],
  ['solana:4uhcVJyU9pJkvQyS88uRDiswHXSCkY3z', 'solana-testnet'],
];
const otherNames: typeof officialNames = [
  ['eip155:42161', 'arbitrum'],
  ['eip155:421614', 'arbitrum-sepolia'],
  ['eip155:11155111', 'ethereum-sepolia'],
  [playMoneyNetwork, 'granary-simulated'],
];

const byName = new Map([...otherNames, ...officialNames].map(([caip2, name]) => [name, caip2]));
const byCaip2 = new Map([...otherNames, ...officialNames]);

/**
 * The CAIP-2 name of a network as a version of x402 names it. Version 1 has names for EVM networks and Solana, and
 * CAIP-2 for others.
 */
export function caip2Of(version: 1 | 2, network: string): string | undefined {
  if (version === 2) return network;
  return isNamed(network) ? undefined : (byName.get(network) ?? network);
}

/** How version 1 names a network; undefined where it has no name for it. */
export const version1NameOf = (caip2: string): string | undefined => (isNamed(caip2) ? byCaip2.get(caip2) : caip2);

const isNamed = (caip2: string): boolean => /^(eip155|solana):/.test(caip2);
