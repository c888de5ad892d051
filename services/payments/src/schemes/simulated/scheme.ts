import { playMoneyNetwork } from '@granary/shared/money/play-money';
import type { Scheme } from '../../networks/scheme';
import { lowerAllCapitals } from '../evm/address';
import { assetKeyOf, parseEvmAssets } from '../evm/assets';
import { evmMethods } from '../evm/methods';
import { isEvmAddress, mistypedEvmAddress } from '../evm/scheme';
import { evmSettings } from '../evm/settings';
import { EvmExact } from '../evm/verify';
import { SimulatedEvm } from './network';
import { simulatedAddress, simulatedAsset } from './token';

const unitsPerTia = 1_000_000n;

const settings = { X402_EVM_ASSETS: evmSettings.X402_EVM_ASSETS };
const isSimulated = (network: string): boolean => network === playMoneyNetwork;

/** Payments in play money, on an EVM network that this service simulates. */
export const simulated: Scheme<typeof settings> = {
  settings,
  shorthand: { word: 'simulated', address: { network: playMoneyNetwork, address: simulatedAddress } },
  takes: isSimulated,
  toOffered: lowerAllCapitals,
  isAddress: isEvmAddress,
  mistyped: mistypedEvmAddress,
  worthOf: () => 'play',
  tokensOf: () => [],
  fixedRates: new Map([[assetKeyOf(simulatedAsset), unitsPerTia]]),
  open: (config, { pool, now, addresses }) => {
    const isTaken = addresses.length > 0;
    const others = parseEvmAssets(config.X402_EVM_ASSETS).filter(({ network }) => isSimulated(network));
    const assets = isTaken ? [...others, simulatedAsset] : [];
    const methods = evmMethods(addresses, assets);
    return Promise.resolve({
      verifier: new EvmExact(assets),
      networks: isTaken ? [new SimulatedEvm(pool, now)] : [],
      methods: () => methods,
    });
  },
};
