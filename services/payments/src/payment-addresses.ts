import { bech32 } from '@scure/base';
import { readSolanaAddress } from './solana-address';
import { simulatedAddress } from './simulated-network';
import { playMoneyNetwork } from '@granary/shared/play-money';
import { lowerAllCapitals, readEvmAddress } from './evm-address';

/** Stands for the chain of the wallets, and the address of the platform on it. */
export const ofWallets = 'wallets';

/** Where payments on a network go. */
export interface PaymentAddress {
  /** CAIP-2, for example `cosmos:celestia`; or `wallets`. */
  network: string;
  /** Empty: known to the service that has the chain of the wallets. */
  address: string;
}

/** The addresses of `cosmos:celestia=celestia1…,eip155:8453=0x…`, of `wallets` and of `simulated`; none of `none`. */
export const parsePaymentAddresses = (text: string): PaymentAddress[] =>
  text === '' || text === 'none'
    ? []
    : text.split(',').map((entry) => {
        if (entry.trim() === 'simulated') return { network: playMoneyNetwork, address: simulatedAddress };
        if (entry.trim() === ofWallets) return { network: ofWallets, address: '' };
        const [network = '', address = ''] = entry.trim().split('=');
        // Clients would take the capitals for a checksum.
        return { network, address: lowerAllCapitals(address) };
      });

export const paymentAddressesRule =
  'networks with their addresses are expected, as cosmos:celestia=celestia1…,eip155:8453=0x…,solana:5eykt…=…, wallets or simulated, separated by commas, each network once, and of wallets and the Cosmos chains one: payments are settled on the chain of the wallets only; or none';

const networksMax = 8;
// CAIP-2 names of the namespaces cosmos, eip155 and solana.
const cosmosNetwork = /^cosmos:[-_a-zA-Z0-9]{1,32}$/;
const evmNetwork = /^eip155:[1-9]\d{0,15}$/;
const solanaNetwork = /^solana:[1-9A-HJ-NP-Za-km-z]{32}$/;
const evmAddress = /^0x[0-9a-fA-F]{40}$/;

export function arePaymentAddresses(text: string): boolean {
  const addresses = parsePaymentAddresses(text);
  const networks = new Set(addresses.map(({ network }) => network));
  if (addresses.length > networksMax || networks.size !== addresses.length) return false;
  return addresses.filter(isOnCosmos).length <= 1 && addresses.every(isPaymentAddress);
}

/**
 * Why the address on a network is mistyped, although it has the form of one: its capitals are not its checksum
 * (EIP-55).
 */
export function mistypedAddress(addresses: readonly PaymentAddress[]): string | undefined {
  const mistyped = addresses.find(
    ({ network, address }) => evmNetwork.test(network) && readEvmAddress(address) === undefined,
  );
  return (
    mistyped &&
    `the address on ${mistyped.network} is mistyped: its capitals are not its checksum (EIP-55); all in lower case it would be taken as it is`
  );
}

/** Whether payments go to a Cosmos chain: that of the wallets, by its name or not. */
export const isOnCosmos = ({ network }: PaymentAddress): boolean =>
  network === ofWallets || network.startsWith('cosmos:');

function isPaymentAddress({ network, address }: PaymentAddress): boolean {
  if (network === ofWallets) return address === '';
  if (solanaNetwork.test(network)) return readSolanaAddress(address) !== undefined;
  return evmNetwork.test(network) ? evmAddress.test(address) : cosmosNetwork.test(network) && isCosmosAddress(address);
}

function isCosmosAddress(text: string): boolean {
  const decoded = text === text.toLowerCase() ? bech32.decodeUnsafe(text) : undefined;
  const bytes = decoded && bech32.fromWordsUnsafe(decoded.words);
  return bytes?.length === 20 || bytes?.length === 32;
}
