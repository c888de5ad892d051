import { ofWallets, type PaymentAddress, type Worth } from '../networks/scheme';
import { schemeOf } from '../schemes/schemes';

const worthOn = (network: string): Worth => schemeOf(network)?.worthOf(network) ?? 'real';

function isMixed(one: string, other: string): boolean {
  const worths = new Set([worthOn(one), worthOn(other)]);
  return worths.size === 2 && (worths.has('play') || !worths.has('test or real'));
}

/** A network with its worth, by the word of X402_PAY_TO that stands for it if there is one. */
function described(network: string): string {
  const shorthand = schemeOf(network)?.shorthand;
  return `${shorthand?.address.network === network ? shorthand.word : network} (${worthOn(network)} money)`;
}

/**
 * Why payments on these networks are not taken beside each other; undefined where they are. Clients pay on the first
 * network that they know, so they would pay in money that is worth nothing.
 */
function mixture(networks: readonly string[]): string | undefined {
  for (const [index, one] of networks.entries()) {
    const other = networks.slice(index + 1).find((network) => isMixed(one, network));
    if (other === undefined) continue;
    return `payments are taken in money of one kind only, not on ${described(one)} beside ${described(other)}`;
  }
  return undefined;
}

const networksOf = (addresses: readonly PaymentAddress[]): string[] => addresses.map(({ network }) => network);

/**
 * Why payments to these addresses of X402_PAY_TO are not taken beside each other, whichever chain the wallets are on.
 */
export const mixedMoney = (addresses: readonly PaymentAddress[]): string | undefined =>
  mixture(networksOf(addresses).filter((network) => network !== ofWallets));

/**
 * Why payments on the networks of X402_PAY_TO cannot be credited to wallets on a chain; undefined where they can. Test
 * money is credited to wallets on a simulated chain too: a payout of either is worth nothing.
 *
 * @param chain The chain of the wallets, as `cosmos:` and its id.
 */
export function uncreditedMoney(addresses: readonly PaymentAddress[], chain: string): string | undefined {
  const isSimulated = worthOn(chain) === 'play';
  const networks = networksOf(addresses).map((network) => (network === ofWallets ? chain : network));
  const wrong = networks.find((network) => worthOn(network) === (isSimulated ? 'real' : 'play'));
  if (wrong === undefined) return mixture(networks);
  return isSimulated
    ? `the wallets are on a simulated chain (CHAIN), from which nobody can pay out what is paid on ${described(wrong)}`
    : `the wallets are on ${chain}, and what is paid on ${described(wrong)} is not credited to them`;
}
