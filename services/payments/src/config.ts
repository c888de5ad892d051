import type { z } from 'zod';
import { whole } from '@granary/shared/config';
import { commonConfig } from '@granary/shared/service/common-config';

/** The environment of the payments service. */
export const paymentsConfig = commonConfig.extend({
  /** Price of storing a GiB for a day, after the free days. */
  RETENTION_UTIA_PER_GIB_DAY: whole(0, Number.MAX_SAFE_INTEGER).default(1000),
  RETENTION_FREE_DAYS: whole(0, 36_500).default(30),
});

export type PaymentsConfig = Readonly<z.infer<typeof paymentsConfig>>;
