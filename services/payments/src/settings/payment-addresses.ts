import type { PaymentAddress } from '../networks/scheme';
import { schemeOf, schemes } from '../schemes/schemes';

/** The addresses of `cosmos:celestia=celestia1…,eip155:8453=0x…`, of `wallets` and of `simulated`; none of `none`. */
export const parsePaymentAddresses = (text: string): PaymentAddress[] =>
  text === '' || text === 'none' ? [] : text.split(',').map((entry) => parseEntry(entry.trim()));

function parseEntry(entry: string): PaymentAddress {
  const named = schemes.find(({ shorthand }) => shorthand?.word === entry)?.shorthand;
  if (named) return named.address;
  const [network = '', address = ''] = entry.split('=');
  return { network, address: schemeOf(network)?.toOffered?.(address) ?? address };
}

const examples = schemes.flatMap(({ example }) => example ?? []).join();
const words = schemes.flatMap(({ shorthand }) => shorthand?.word ?? []).join(' or ');

export const paymentAddressesRule = `networks with their addresses are expected, as ${examples}, ${words}, separated by commas, each network once, and of wallets and the Cosmos chains one: payments are settled on the chain of the wallets only; or none`;

const networksMax = 8;

export function arePaymentAddresses(text: string): boolean {
  const addresses = parsePaymentAddresses(text);
  const networks = new Set(addresses.map(({ network }) => network));
  if (addresses.length > networksMax || networks.size !== addresses.length) return false;
  const areTooMany = schemes.some(
    (scheme) => scheme.takesOneNetwork && addresses.filter(({ network }) => scheme.takes(network)).length > 1,
  );
  return !areTooMany && addresses.every((address) => schemeOf(address.network)?.isAddress(address) === true);
}

/** Why an address is mistyped, although it has the form of one on its network. */
export const mistypedAddress = (addresses: readonly PaymentAddress[]): string | undefined =>
  addresses.flatMap((address) => schemeOf(address.network)?.mistyped?.(address) ?? [])[0];
