import { whole } from '@granary/shared/config';
import { z } from 'zod';
import { RpcUrlsSetting } from '../../networks/rpc-urls-setting';
import { areSolanaAssets, solanaAssetsRule } from './assets';
import { areSolanaFeePayers, solanaFeePayersRule } from './fee-payers';

export const solanaRpcUrls = new RpcUrlsSetting(
  'SOLANA_RPC_URLS',
  'solana:[1-9A-HJ-NP-Za-km-z]{32}',
  'networks of Solana',
  'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp',
);

export const solanaSettings = {
  /** Tokens on Solana in which payments are verified, if there is somebody who pays the fees. */
  X402_SOLANA_ASSETS: z.string().refine(areSolanaAssets, solanaAssetsRule).default('usdc,usdc-test'),
  /** Addresses that pay the fees of payments on Solana; none: no payments on Solana. */
  X402_SOLANA_FEE_PAYERS: z.string().refine(areSolanaFeePayers, solanaFeePayersRule).default(''),
  /** The nodes of networks of Solana on which payments are settled. A URL may hold a secret. */
  SOLANA_RPC_URLS: z
    .string()
    .refine((text) => solanaRpcUrls.isValid(text), solanaRpcUrls.rule)
    .optional(),
  SOLANA_RPC_URLS_FILE: z.string().min(1).optional(),
  /** The commitment at which a transaction on Solana counts as final. */
  SOLANA_COMMITMENT: z
    .enum(['confirmed', 'finalized'], { error: 'confirmed or finalized is expected' })
    .default('confirmed'),
  /** A node of Solana that takes longer for an answer counts as failed. */
  SOLANA_RPC_TIMEOUT_MS: whole(100, 60_000).default(5_000),
};
