import { join } from 'node:path';
import type { PaymentsDefinition } from '@granary/shared/gen/granary/payments/v1/Payments';
import { loadService } from '@granary/shared/rpc/protos';
import type { Implementation } from '@granary/shared/rpc/implementation';
import { startService, type Overrides, type RunningService } from '@granary/shared/service/start';
import type { AccessTo } from '@granary/shared/rpc/access';
import type { PaymentsConfig } from './config';
import { paymentsHandlers } from './handlers';
import { setPrices } from './prices';

export const paymentsDefinition = loadService<PaymentsDefinition>('payments', 'Payments');

const access = {
  gateway: ['quoteEncryptedIndex', 'quoteOperation', 'verifyPayment'],
  finance: ['getPrices'],
} satisfies AccessTo<PaymentsDefinition>;

export interface PaymentsOverrides extends Overrides {
  now?: () => Date;
}

/** The payments service: the configured prices of the platform. */
export function startPayments(config: PaymentsConfig, overrides: PaymentsOverrides = {}): Promise<RunningService> {
  return startService('payments', config, join(__dirname, '..', 'migrations'), overrides, async ({ pool, clock }) => {
    await setPrices(
      pool,
      {
        retention_utia_per_gib_day: BigInt(config.RETENTION_UTIA_PER_GIB_DAY),
        retention_free_days: BigInt(config.RETENTION_FREE_DAYS),
      },
      (overrides.now ?? clock.now)(),
    );
    const payments: Implementation<PaymentsDefinition> = {
      definition: paymentsDefinition,
      access,
      handlers: paymentsHandlers({ pool, prices: config }),
    };
    return { implementations: [payments] };
  });
}
