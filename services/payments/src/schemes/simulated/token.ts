import { playMoneyNetwork } from '@granary/shared/money/play-money';
import type { EvmAsset } from '../evm/assets';

/** The address that payments for it go to. Nobody has its key. */
export const simulatedAddress = '0x6772616e6172792d73696d756c61746564000001';

/** Its one token. */
export const simulatedAsset: EvmAsset = {
  network: playMoneyNetwork,
  chainId: 1_735_549_294n,
  address: '0x6772616e6172792d73696d756c61746564000002',
  name: 'Simulated USDC',
  version: '2',
};
