import { z } from 'zod';
import { grpcAddress, whole } from '@granary/shared/config';
import { commonConfig } from '@granary/shared/service/common-config';
import { areEvmAssets, evmAssetsRule } from './evm-assets';
import { areFeeTiers, feeTiersRule } from './fee-tiers';
import { arePaymentAddresses, paymentAddressesRule } from './payment-addresses';

/** The environment of the payments service. */
export const paymentsConfig = commonConfig.extend({
  /** Price of storing a GiB for a day, after the free days. */
  RETENTION_UTIA_PER_GIB_DAY: whole(0, Number.MAX_SAFE_INTEGER).default(1000),
  RETENTION_FREE_DAYS: whole(0, 36_500).default(30),
  /** Prices that POST /api/pricing/quote tells, of a KB of 1,024 bytes: that is stored, that is read, … */
  WRITE_UTIA_PER_KB: whole(0, Number.MAX_SAFE_INTEGER).default(0),
  READ_UTIA_PER_KB: whole(0, Number.MAX_SAFE_INTEGER).default(0),
  /** … and for each indexed field that a write fills. */
  INDEX_UTIA_PER_KB: whole(0, Number.MAX_SAFE_INTEGER).default(0),
  BROKER_FEE_PERCENT: z.string().refine(areFeeTiers, feeTiersRule).default('0'),
  /** The part of an application in what others pay for it, and the most that its own prices may say. */
  APP_SHARE_PERCENT: whole(0, 100).default(80),
  /** Where x402 payments go, by network, in the order in which they are offered; none: no x402 payments. */
  X402_PAY_TO: z.string().refine(arePaymentAddresses, paymentAddressesRule).default(''),
  /** Tokens on EVM networks in which payments are verified, with their EIP-712 domains. */
  X402_EVM_ASSETS: z.string().refine(areEvmAssets, evmAssetsRule).default('usdc,usdc-test'),
  /** How long what a read by an agent key costs is held back that is neither completed nor cancelled. */
  AGENT_RESERVATION_MS: whole(1_000, 3_600_000).default(60_000),
  /** The ledger. May be absent only when finance is in the same process. */
  FINANCE_ADDRESS: grpcAddress.optional(),
});

export type PaymentsConfig = Readonly<z.infer<typeof paymentsConfig>>;
