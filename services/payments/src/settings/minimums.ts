import { readAmounts, type Amounts } from '../amounts-by-network';
import { schemeOf } from '../schemes/schemes';

/** The least that a payment is for, in utia, by network. */
export interface Minimums {
  usual: bigint;
  byNetwork: ReadonlyMap<string, bigint>;
}

const read = (text: string): Amounts | undefined => readAmounts(text, (name) => schemeOf(name) !== undefined);

/** The amounts of `1000,eip155:1=500000`: that of all networks, and those of some. */
export function parseMinimums(text: string): Minimums {
  const { usual = 0n, byNetwork } = read(text)!;
  return { usual, byNetwork };
}

export const areMinimums = (text: string): boolean => read(text) !== undefined;

export const minimumsRule =
  'amounts in utia are expected, as 1000 for all networks, or 1000,eip155:1=500000 with another one for some, each network once';
