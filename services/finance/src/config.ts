import { z } from 'zod';
import { grpcAddress } from '@granary/shared/config';
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
});

export type FinanceConfig = Readonly<z.infer<typeof financeConfig>>;
