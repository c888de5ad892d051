import { join } from 'node:path';
import { outboxImplementation } from '@granary/shared/bus/outbox';
import { readableBy } from '@granary/shared/bus/subscribers';
import { createSignal } from '@granary/shared/concurrency/signal';
import type { PaymentsDefinition } from '@granary/shared/gen/granary/payments/v1/Payments';
import { loadService } from '@granary/shared/rpc/protos';
import type { Implementation } from '@granary/shared/rpc/implementation';
import type { Schema } from '@granary/shared/service/schema';
import {
  startService,
  type Context,
  type Overrides,
  type Parts,
  type RunningService,
} from '@granary/shared/service/start';
import type { AccessTo } from '@granary/shared/rpc/access';
import type { PaymentsConfig } from './config';
import { paymentsHandlers } from './handlers';
import { setPrices } from './prices';

export const paymentsDefinition = loadService<PaymentsDefinition>('payments', 'Payments');

const access = {
  gateway: ['quoteEncryptedIndex', 'quoteOperation', 'verifyPayment'],
} satisfies AccessTo<PaymentsDefinition>;

export interface PaymentsOverrides extends Overrides {
  now?: () => Date;
}

/** What its database has. */
export const paymentsSchema: Schema = { migrations: join(__dirname, '..', 'migrations'), bus: true };

/** The payments service: the configured prices of the platform, which it publishes. */
export function startPayments(config: PaymentsConfig, overrides: PaymentsOverrides = {}): Promise<RunningService> {
  const build = async ({ pool, log, clock, trust }: Context): Promise<Parts> => {
    const appended = createSignal();
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
      handlers: paymentsHandlers(config),
    };
    const outbox = readableBy(['finance'], outboxImplementation({ pool, log, signer: trust.signer, appended }));
    return { implementations: [payments, outbox], appended };
  };
  return startService('payments', config, paymentsSchema, overrides, build);
}
