import { readAmounts, type Amounts } from '../../amounts-by-network';
import { isEvmNetwork } from './address';

/** The most that a unit of gas may cost where no setting says otherwise, in gwei. */
const usualMaxGwei = 20n;
/** Replaces `usualMaxGwei` on networks where gas has another price, or the money is worth less than ether. */
const usualMaxGweiOn: ReadonlyMap<string, bigint> = new Map([
  ['eip155:1', 100n],
  ['eip155:137', 2_000n],
  ['eip155:80002', 2_000n],
  ['eip155:43114', 500n],
  ['eip155:43113', 500n],
  ['eip155:143', 2_000n],
]);

const read = (text: string): Amounts | undefined => readAmounts(text, isEvmNetwork);

const weiPerGwei = 1_000_000_000n;

/**
 * The most that a transaction offers for a unit of gas on a network, in wei.
 *
 * @param text `50,eip155:1=200`, in gwei: that of all networks, and those of some; undefined: the usual ones.
 */
export function maxFeeOn(network: string, text: string | undefined): bigint {
  const { usual, byNetwork } = read(text ?? '') ?? { usual: undefined, byNetwork: new Map<string, bigint>() };
  return weiPerGwei * (byNetwork.get(network) ?? usual ?? usualMaxGweiOn.get(network) ?? usualMaxGwei);
}

export function areMaxFees(text: string): boolean {
  const amounts = read(text);
  return amounts !== undefined && ![amounts.usual, ...amounts.byNetwork.values()].includes(0n);
}

export const maxFeesRule =
  'the most that a unit of gas may cost is expected, in whole gwei from 1, as 50 for all networks, or 50,eip155:1=200 with another one for some, each network once';
