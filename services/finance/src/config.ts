import { z } from 'zod';
import { grpcAddress, whole } from '@granary/shared/config';
import { commonConfig } from '@granary/shared/service/common-config';

const address = grpcAddress.optional();

/** The environment of the finance service. An address may be absent only when that service is in the same process. */
export const financeConfig = commonConfig.extend({
  DATA_ADDRESS: address,
  BLOBS_ADDRESS: address,
  PAYMENTS_ADDRESS: address,
  /** The seed of all wallets, made at the first start. Whoever loses it loses what was sent to the wallets. */
  KEY_FILE: z.string().min(1),
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
  /** The time between two blocks of the simulated chain. */
  SIMULATED_BLOCK_MS: whole(10, 3_600_000).default(1_000),
  /** How often the simulated chain loses a transaction that it has accepted, and drops one instead of including it. */
  SIMULATED_LOSS_PERCENT: whole(0, 100).default(0),
  SIMULATED_EVICTION_PERCENT: whole(0, 100).default(0),
  /** How many blocks late it includes a transaction, at most. */
  SIMULATED_DELAY_BLOCKS: whole(0, 1_000).default(0),
});

export type FinanceConfig = Readonly<z.infer<typeof financeConfig>>;
