import { whole } from '@granary/shared/config';
import { z } from 'zod';
import { RpcUrlsSetting } from '../../networks/rpc-urls-setting';
import { areEvmAssets, evmAssetsRule } from './assets';
import { areMaxFees, maxFeesRule } from './max-fees';

export const evmRpcUrls = new RpcUrlsSetting('EVM_RPC_URLS', 'eip155:[1-9]\\d{0,15}', 'EVM networks', 'eip155:8453');

export const evmSettings = {
  /** Tokens on EVM networks in which payments are verified, with their EIP-712 domains. */
  X402_EVM_ASSETS: z.string().refine(areEvmAssets, evmAssetsRule).default('usdc,usdc-test'),
  /** The nodes of EVM networks on which payments are settled. A URL may hold a secret. */
  EVM_RPC_URLS: z
    .string()
    .refine((text) => evmRpcUrls.isValid(text), evmRpcUrls.rule)
    .optional(),
  EVM_RPC_URLS_FILE: z.string().min(1).optional(),
  /** How many blocks have to follow that of a transfer. */
  EVM_DEPTH_BLOCKS: whole(0, 100).default(2),
  /** A node that takes longer for an answer counts as failed. */
  EVM_RPC_TIMEOUT_MS: whole(100, 60_000).default(5_000),
  /** The age at which a transaction that is not included is replaced by one with higher fees. */
  EVM_REPLACE_AFTER_MS: whole(1_000, 3_600_000).default(30_000),
  /** The most that a unit of gas may cost, in gwei; where it costs more, nothing is sent. */
  EVM_MAX_FEE_GWEI: z.string().refine(areMaxFees, maxFeesRule).optional(),
};
