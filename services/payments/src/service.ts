import { join } from 'node:path';
import { outboxImplementation } from '@granary/shared/bus/outbox';
import { readableBy } from '@granary/shared/bus/subscribers';
import { createSignal } from '@granary/shared/concurrency/signal';
import { ConfigError } from '@granary/shared/config';
import type { LedgerDefinition } from '@granary/shared/gen/granary/finance/v1/Ledger';
import { openClient, type OpenClient, type Target } from '@granary/shared/grpc/client';
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
import { parseEvmAssets } from './evm-assets';
import { paymentsHandlers } from './handlers';
import { parsePaymentAddresses } from './payment-addresses';
import { setPrices } from './prices';
import { openQuoteKey } from './quotes/quote-key';
import { AgentPayments } from './spending/agent-payments';
import { Verifier } from './verify/verifier';

export const paymentsDefinition = loadService<PaymentsDefinition>('payments', 'Payments');
const ledgerDefinition = loadService<LedgerDefinition>('finance', 'Ledger');

const access = {
  gateway: [
    ...(['quoteEncryptedIndex', 'quoteOperation', 'verifyPayment', 'listPaymentKinds'] as const),
    ...(['offerRead', 'reserveSpend', 'completeSpend', 'cancelSpend'] as const),
  ],
} satisfies AccessTo<PaymentsDefinition>;

export interface PaymentsOverrides extends Overrides {
  now?: () => Date;
  /** The ledger of finance, which starts after this service. */
  ledger?: () => Target<LedgerDefinition>;
}

/** What its database has. */
export const paymentsSchema: Schema = { migrations: join(__dirname, '..', 'migrations'), bus: true };

/**
 * The payments service: the configured prices of the platform, which it publishes; offers of paid reads, and what agent keys
 * pay. Throws a ConfigError when the address of finance is missing.
 */
export async function startPayments(
  config: PaymentsConfig,
  overrides: PaymentsOverrides = {},
): Promise<RunningService> {
  const { FINANCE_ADDRESS: financeAddress } = config;
  if (!overrides.ledger && financeAddress === undefined)
    throw new ConfigError('The configuration is wrong:\n  FINANCE_ADDRESS: is missing');
  const build = async ({ pool, log, clock, trust }: Context): Promise<Parts> => {
    const appended = createSignal();
    const now = overrides.now ?? clock.now;
    const quoteKey = await openQuoteKey(pool);
    let opened: OpenClient<LedgerDefinition> | undefined;
    const ledger = () => {
      opened ??= openClient(ledgerDefinition, overrides.ledger?.() ?? { address: financeAddress! }, {
        ...{ log, credentials: () => trust.towards('finance') },
        repeatable: ['apply', 'getBalances'],
        multiplexed: ['apply'],
      });
      return opened.client;
    };
    await setPrices(
      pool,
      {
        retention_utia_per_gib_day: BigInt(config.RETENTION_UTIA_PER_GIB_DAY),
        retention_free_days: BigInt(config.RETENTION_FREE_DAYS),
      },
      now(),
    );
    const payments: Implementation<PaymentsDefinition> = {
      definition: paymentsDefinition,
      access,
      handlers: paymentsHandlers({
        prices: config,
        offers: { ...config, key: quoteKey, addresses: parsePaymentAddresses(config.X402_PAY_TO), now },
        verifier: new Verifier({ evmAssets: parseEvmAssets(config.X402_EVM_ASSETS), now }),
        agentPayments: new AgentPayments({ ...config, ledger, now }),
      }),
    };
    const outbox = readableBy(['finance'], outboxImplementation({ pool, log, signer: trust.signer, appended }));
    const stop = () => Promise.resolve(opened?.close());
    return { implementations: [payments, outbox], appended, stop };
  };
  return startService('payments', config, paymentsSchema, overrides, build);
}
