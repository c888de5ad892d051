import { readAmounts } from './amounts-by-network';

/** The least that a payment is for, in utia, by network. */
export interface Minimums {
  usual: bigint;
  byNetwork: ReadonlyMap<string, bigint>;
}

/** The amounts of `1000,eip155:1=500000`: that of all networks, and those of some. */
export function parseMinimums(text: string): Minimums {
  const { usual = 0n, byNetwork } = readAmounts(text)!;
  return { usual, byNetwork };
}

export const areMinimums = (text: string): boolean => readAmounts(text) !== undefined;

export const minimumsRule =
  'amounts in utia are expected, as 1000 for all networks, or 1000,eip155:1=500000 with another one for some, each network once';
