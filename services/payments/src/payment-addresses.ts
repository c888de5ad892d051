import { bech32 } from '@scure/base';

/** Where payments on a network go. */
export interface PaymentAddress {
  /** CAIP-2, for example `cosmos:celestia`. */
  network: string;
  address: string;
}

/** The addresses of `cosmos:celestia=celestia1…,cosmos:mocha-4=celestia1…`. */
export const parsePaymentAddresses = (text: string): PaymentAddress[] =>
  text === ''
    ? []
    : text.split(',').map((entry) => {
        const [network = '', address = ''] = entry.trim().split('=');
        return { network, address };
      });

export const paymentAddressesRule =
  'networks with their addresses are expected, as cosmos:celestia=celestia1…, separated by commas, each network once';

const networksMax = 8;
// The chain id of a CAIP-2 name of the namespace cosmos.
const cosmosNetwork = /^cosmos:[-_a-zA-Z0-9]{1,32}$/;

export function arePaymentAddresses(text: string): boolean {
  const addresses = parsePaymentAddresses(text);
  const networks = new Set(addresses.map(({ network }) => network));
  return (
    addresses.length <= networksMax &&
    networks.size === addresses.length &&
    addresses.every(({ network, address }) => cosmosNetwork.test(network) && isAddress(address))
  );
}

function isAddress(text: string): boolean {
  const decoded = text === text.toLowerCase() ? bech32.decodeUnsafe(text) : undefined;
  const bytes = decoded && bech32.fromWordsUnsafe(decoded.words);
  return bytes?.length === 20 || bytes?.length === 32;
}
