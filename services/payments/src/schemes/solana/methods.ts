import type { PaymentMethod } from '../../networks/payment-method';
import type { PaymentAddress } from '../../networks/scheme';
import { version1NameOf } from '../../verify/version1-names';
import { solanaAssetKeyOf, solanaSymbolOf, type SolanaAsset } from './assets';

/**
 * The ways to pay in tokens on Solana, in the order of the addresses. The requirement names the account that pays the
 * fees; the memo of the transaction is the quote.
 */
export const solanaMethods = (
  addresses: readonly PaymentAddress[],
  assets: readonly SolanaAsset[],
  feePayer: string,
): PaymentMethod[] =>
  addresses.flatMap(({ network, address: payTo }) =>
    assets
      .filter((asset) => asset.network === network)
      .map((asset) => ({
        network,
        payTo,
        version1Network: version1NameOf(network),
        asset: asset.mint,
        rateOf: solanaAssetKeyOf(asset),
        extra: {
          feePayer,
          chainType: 'solana',
          paymentMethod: 'x402-facilitator',
          tokenSymbol: solanaSymbolOf(asset),
          tokenDecimals: asset.decimals,
        },
        hasMemo: true,
      })),
  );
