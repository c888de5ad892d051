import { optionalText, whole } from '@granary/shared/config';
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
  X402_SOLANA_ASSETS: z
    .string()
    .refine(areSolanaAssets, solanaAssetsRule)
    .default('usdc,usdc-test')
    .describe(
      'Tokens on Solana of which [payments are verified](../money/networks.md#solana): `solana:5eykt…/EPjFW…=6`.',
    ),
  X402_SOLANA_FEE_PAYERS: z
    .string()
    .refine(areSolanaFeePayers, solanaFeePayersRule)
    .default('')
    .describe(
      'Addresses that pay the fees of payments on Solana which others settle, separated by commas, beside that of `X402_KEY_FILE`. Without any fee payer no payments on Solana are verified.',
    ),
  SOLANA_RPC_URLS: z
    .string()
    .refine((text) => solanaRpcUrls.isValid(text), solanaRpcUrls.rule)
    .optional()
    .describe(
      '[Nodes of networks of Solana](../money/networks.md#solana) on which payments are settled: `solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp=https://…`, separated by commas, a network once for each node.',
    ),
  SOLANA_RPC_URLS_FILE: optionalText.describe(
    'A file that holds them, in place of `SOLANA_RPC_URLS`, since a URL may hold a secret.',
  ),
  SOLANA_COMMITMENT: z
    .enum(['confirmed', 'finalized'], { error: 'confirmed or finalized is expected' })
    .default('confirmed')
    .describe('The commitment at which a transaction counts.'),
  SOLANA_RPC_TIMEOUT_MS: whole(100, 60_000)
    .default(5_000)
    .describe('A node that takes longer for an answer counts as failed.'),
};
