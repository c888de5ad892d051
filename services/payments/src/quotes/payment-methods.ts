import { assetKeyOf, type EvmAsset } from '../evm-assets';
import { solanaAssetKeyOf, solanaSymbolOf, type SolanaAsset } from '../solana-assets';
import type { PaymentAddress } from '../payment-addresses';
import { version1NameOf } from '../verify/networks';

/** A network on which payments are taken, in an asset. */
export interface PaymentMethod {
  /** CAIP-2. */
  network: string;
  /** How version 1 of x402 names it; undefined: version 1 cannot pay this way. */
  version1Network: string | undefined;
  /** Where payments go. */
  payTo: string;
  /** `utia`, or the address of the token. */
  asset: string;
  /** Of its rate; undefined: utia, taken as they are. */
  rateOf: string | undefined;
  /** What the requirement says in `extra` besides. */
  extra: Readonly<Record<string, string | number>>;
  /** Whether the requirement asks for the quote as the memo of the transaction. */
  hasMemo?: boolean;
}

/** The tokens on Solana that are taken, and who pays the fees. */
export interface SolanaOffers {
  assets: readonly SolanaAsset[];
  feePayer: string;
}

const utia = { asset: 'utia', rateOf: undefined };
const usualDecimals = 6;

/** All ways to pay: in utia, then in tokens on EVM networks, then on Solana, each in the order of the addresses. */
export function paymentMethods(
  addresses: readonly PaymentAddress[],
  assets: readonly EvmAsset[],
  solana: SolanaOffers = { assets: [], feePayer: '' },
): PaymentMethod[] {
  const cosmos = addresses.filter(({ network }) => network.startsWith('cosmos:'));
  return [
    ...cosmos.map(({ network, address: payTo }) => ({
      ...{ network, version1Network: version1NameOf(network), payTo, ...utia },
      extra: { chainType: 'cosmos', paymentMethod: 'native', tokenSymbol: 'TIA', tokenDecimals: usualDecimals },
    })),
    ...addresses.flatMap(({ network, address: payTo }) =>
      assets
        .filter((asset) => asset.network === network)
        .map((asset) => ({
          ...{ network, version1Network: version1NameOf(network), payTo },
          ...{ asset: asset.address, rateOf: assetKeyOf(asset) },
          extra: {
            ...{ name: asset.name, version: asset.version, chainType: 'evm', paymentMethod: 'x402-facilitator' },
            ...{ tokenSymbol: asset.name, tokenDecimals: usualDecimals },
          },
        })),
    ),
    ...addresses.flatMap(({ network, address: payTo }) => solanaMethods({ network, payTo }, solana)),
  ];
}

/** The account that pays the fees is named in the requirement; the memo there is the quote. */
const solanaMethods = (
  to: Pick<PaymentMethod, 'network' | 'payTo'>,
  { assets, feePayer }: SolanaOffers,
): PaymentMethod[] =>
  assets
    .filter((asset) => asset.network === to.network)
    .map((asset) => ({
      ...{ ...to, version1Network: version1NameOf(to.network), asset: asset.mint, rateOf: solanaAssetKeyOf(asset) },
      extra: {
        ...{ feePayer, chainType: 'solana', paymentMethod: 'x402-facilitator' },
        ...{ tokenSymbol: solanaSymbolOf(asset), tokenDecimals: asset.decimals },
      },
      hasMemo: true,
    }));
