import { z } from 'zod';
import { whole } from '@granary/shared/config';
import { commonConfig } from '@granary/shared/service/common-config';
import { areFeeTiers, feeTiersRule } from './fee-tiers';

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
});

export type PaymentsConfig = Readonly<z.infer<typeof paymentsConfig>>;
