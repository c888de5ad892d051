import { optionalText, whole } from '@granary/shared/config';
import { z } from 'zod';
import { RpcUrlsSetting } from '../../networks/rpc-urls-setting';
import { areEvmAssets, evmAssetsRule } from './assets';
import { areMaxFees, maxFeesRule } from './max-fees';

export const evmRpcUrls = new RpcUrlsSetting('EVM_RPC_URLS', 'eip155:[1-9]\\d{0,15}', 'EVM networks', 'eip155:8453');

export const evmSettings = {
  X402_EVM_ASSETS: z
    .string()
    .refine(areEvmAssets, evmAssetsRule)
    .default('usdc,usdc-test')
    .describe(
      'EVM tokens of which [payments are verified](../money/networks.md#evm-networks), with their EIP-712 domains: `eip155:8453/0x8335…=USD Coin:2`.',
    ),
  EVM_RPC_URLS: z
    .string()
    .refine((text) => evmRpcUrls.isValid(text), evmRpcUrls.rule)
    .optional()
    .describe(
      '[Nodes of EVM networks](../money/networks.md#evm-networks) on which payments are settled: `eip155:8453=https://…`, separated by commas, a network once for each node.',
    ),
  EVM_RPC_URLS_FILE: optionalText.describe(
    'A file that holds them, in place of `EVM_RPC_URLS`, since a URL may hold a secret.',
  ),
  EVM_DEPTH_BLOCKS: whole(0, 100).default(2).describe('A transfer counts once this many blocks have followed its own.'),
  EVM_RPC_TIMEOUT_MS: whole(100, 60_000)
    .default(5_000)
    .describe('A node that takes longer for an answer counts as failed.'),
  EVM_REPLACE_AFTER_MS: whole(1_000, 3_600_000)
    .default(30_000)
    .describe('A transaction that is not included this long after it was signed is replaced by one with higher fees.'),
  EVM_MAX_FEE_GWEI: z.string().refine(areMaxFees, maxFeesRule).optional().meta({
    description:
      'The most that a unit of gas may cost, [in gwei](../money/networks.md#gas); `50,eip155:1=200` sets another amount for some networks. Where it costs more, nothing is sent.',
    defaultText: 'by network',
  }),
};
