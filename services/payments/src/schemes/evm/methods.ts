import type { PaymentMethod } from '../../networks/payment-method';
import type { PaymentAddress } from '../../networks/scheme';
import { version1NameOf } from '../../verify/version1-names';
import { assetKeyOf, type EvmAsset } from './assets';

/** The decimals with which clients show amounts of a token. */
const shownDecimals = 6;

/** The ways to pay in tokens on EVM networks, in the order of the addresses. */
export const evmMethods = (addresses: readonly PaymentAddress[], assets: readonly EvmAsset[]): PaymentMethod[] =>
  addresses.flatMap(({ network, address: payTo }) =>
    assets
      .filter((asset) => asset.network === network)
      .map((asset) => ({
        network,
        version1Network: version1NameOf(network),
        payTo,
        asset: asset.address,
        rateOf: assetKeyOf(asset),
        extra: {
          name: asset.name,
          version: asset.version,
          chainType: 'evm',
          paymentMethod: 'x402-facilitator',
          tokenSymbol: asset.name,
          tokenDecimals: shownDecimals,
        },
      })),
  );
