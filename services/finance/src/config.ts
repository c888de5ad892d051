import { z } from 'zod';
import { grpcAddress, whole } from '@granary/shared/config';
import { commonConfig } from '@granary/shared/service/common-config';

const address = grpcAddress.optional();

/** The environment of the finance service. An address may be absent only when that service is in the same process. */
export const financeConfig = commonConfig.extend({
  DATA_ADDRESS: address,
  BLOBS_ADDRESS: address,
  PAYMENTS_ADDRESS: address,
  /** The seed of all wallets. Whoever loses it loses what was sent to the wallets. */
  KEY_FILE: z.string().min(1),
  /** Whether the first start makes the file: only where it is kept, not on a volume that ends with its pod. */
  KEY_FILE_CREATE: z.stringbool().default(false),
  /** Of the addresses of the chain; final once the service has run. */
  ADDRESS_PREFIX: z
    .string()
    .regex(/^[a-z][a-z0-9]{0,19}$/, 'lower-case letters and digits are expected')
    .default('celestia'),
  /** What a unit of gas costs, in utia: transactions are signed with it. */
  CHAIN_GAS_PRICE: z
    .string()
    .regex(/^\d{1,6}(\.\d{1,9})?$/, 'a decimal number is expected, for example 0.004')
    .default('0.004'),
  /** Nothing smaller is paid out: the platform pays the fees. */
  PAYOUT_FLOOR_UTIA: whole(1, Number.MAX_SAFE_INTEGER).default(50_000),
  /** From an automatic payout of an app to its next one, at least. */
  PAYOUT_INTERVAL_MS: whole(0, 31_536_000_000).default(3_600_000),
  /** A deposit is credited once so many blocks have followed its own. */
  DEPOSIT_DEPTH_BLOCKS: whole(0, 10_000).default(1),
  /** What the faucet of the simulated chain gives at a time, at most; 0: it is closed. */
  FAUCET_UTIA_MAX: whole(0, Number.MAX_SAFE_INTEGER).default(1_000_000_000),
  /** The time between two blocks of the simulated chain. */
  SIMULATED_BLOCK_MS: whole(10, 3_600_000).default(2_000),
  /** How often the simulated chain loses a transaction that it has accepted, and drops one instead of including it. */
  SIMULATED_LOSS_PERCENT: whole(0, 100).default(0),
  SIMULATED_EVICTION_PERCENT: whole(0, 100).default(0),
  /** How many blocks late it includes a transaction, at most. */
  SIMULATED_DELAY_BLOCKS: whole(0, 1_000).default(0),
});

export type FinanceConfig = Readonly<z.infer<typeof financeConfig>>;
