import { join } from 'node:path';
import { startConsumer } from '@granary/shared/bus/start-consumer';
import type { Handle } from '@granary/shared/bus/inbox';
import { outboxDefinition } from '@granary/shared/bus/outbox';
import { ConfigError } from '@granary/shared/config';
import type { OutboxDefinition } from '@granary/shared/gen/granary/events/v1/Outbox';
import type { ChainDefinition } from '@granary/shared/gen/granary/finance/v1/Chain';
import type { FinanceDefinition } from '@granary/shared/gen/granary/finance/v1/Finance';
import type { LedgerDefinition } from '@granary/shared/gen/granary/finance/v1/Ledger';
import { openClient, type Target } from '@granary/shared/grpc/client';
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
import { startLastPayouts } from './closing/last-payouts';
import { observeStranded } from './closing/stranded-wallets';
import { chainHandlers } from './handlers/chain';
import type { FinanceConfig } from './config';
import { handlePrices, priceTopics, usageHandler, usageTopics } from './events';
import { financeHandlers, type HandlerOptions } from './handlers/finance';
import { ledgerHandlers } from './handlers/ledger';
import { startVoidingExpiredHolds } from './ledger/expired-holds';
import { deductionHandlers, grantHandlers } from './handlers/grants';
import { LedgerBatches } from './ledger/ledger-batches';
import { openChain, type OpenChain } from './open-chain';
import { startMoney } from './start-money';
import { startReconciliation } from './reconciliation/reconciliation';
import { openKeyFile } from './wallets/keys';
import { storedPrices } from './usage/prices';
import { startRetentionCharges } from './usage/retention-charges';
import { assertWalletOrigin, hasWalletOrigin } from './wallets/wallet';

export const financeDefinition = loadService<FinanceDefinition>('finance', 'Finance');
export const ledgerDefinition = loadService<LedgerDefinition>('finance', 'Ledger');
export const chainDefinition = loadService<ChainDefinition>('finance', 'Chain');

export interface FinanceOverrides extends Overrides {
  now?: () => Date;
  paymentsOutbox?: Target<OutboxDefinition>;
  dataOutbox?: Target<OutboxDefinition>;
  blobsOutbox?: Target<OutboxDefinition>;
  /** How often charges that are due are looked for. */
  chargeEveryMs?: number;
  reconcileEveryMs?: number;
  /** How often payouts that wait, and blocks of the chain, are looked for. */
  chainEveryMs?: number;
}

type EventSource = 'data' | 'blobs' | 'payments';

interface Targets {
  paymentsOutbox: Target<OutboxDefinition>;
  dataOutbox: Target<OutboxDefinition>;
  blobsOutbox: Target<OutboxDefinition>;
}

/** What its database has. */
export const financeSchema: Schema = { migrations: join(__dirname, '..', 'migrations'), bus: true, idempotency: true };

/**
 * The finance service: ledger, wallets, payouts, what retention costs. Throws a ConfigError for an address that is
 * missing, a KeyFileError or WalletOriginError when the seed cannot be used.
 */
export async function startFinance(config: FinanceConfig, overrides: FinanceOverrides = {}): Promise<RunningService> {
  const targets = findTargets(config, overrides);
  const build = (context: Context) => buildFinance(context, config, targets, overrides);
  return startService('finance', config, financeSchema, overrides, build);
}

function findTargets(config: FinanceConfig, overrides: FinanceOverrides): Targets {
  const missing: string[] = [];
  const at = (variable: 'DATA_ADDRESS' | 'BLOBS_ADDRESS' | 'PAYMENTS_ADDRESS') => {
    const address = config[variable];
    if (address === undefined) missing.push(`  ${variable}: is missing`);
    return { address: address ?? '' };
  };
  const targets = {
    paymentsOutbox: overrides.paymentsOutbox ?? at('PAYMENTS_ADDRESS'),
    dataOutbox: overrides.dataOutbox ?? at('DATA_ADDRESS'),
    blobsOutbox: overrides.blobsOutbox ?? at('BLOBS_ADDRESS'),
  };
  if (missing.length > 0) throw new ConfigError(`The configuration is wrong:\n${missing.join('\n')}`);
  return targets;
}

/** Opens consumers of the events of other services. */
function consumerOf({ pool, log, bus, trust }: Pick<Context, 'pool' | 'log' | 'bus' | 'trust'>) {
  return (from: EventSource, target: Target<OutboxDefinition>, topics: string[], handle: Handle) => {
    const outbox = openClient(outboxDefinition, target, { log, credentials: () => trust.towards(from) });
    const consumer = startConsumer({
      pool,
      log,
      bus,
      from,
      handle,
      topics,
      name: `finance-${from}`,
      source: outbox.client,
      verifier: trust.verifier(from),
    });
    return { ...consumer, stop: () => consumer.stop().finally(() => outbox.close()) };
  };
}

async function buildFinance(
  { pool, log, bus, trust, clock }: Context,
  config: FinanceConfig,
  targets: Targets,
  { now = clock.now, ...every }: FinanceOverrides,
): Promise<Parts> {
  // A seed is only made for a database that has none: in place of a lost one it would be another one.
  const isNew = !(await hasWalletOrigin(pool));
  const keys = await openKeyFile(config.KEY_FILE, { create: config.KEY_FILE_CREATE && isNew, isNew });
  const wallets = { pool, keys, addressPrefix: config.ADDRESS_PREFIX };
  await assertWalletOrigin(wallets);
  const opened = await openChain(pool, keys, config, log);

  const consume = consumerOf({ pool, log, bus, trust });
  const data = consume('data', targets.dataOutbox, usageTopics, usageHandler());
  const blobs = consume('blobs', targets.blobsOutbox, usageTopics, usageHandler());
  const payments = consume('payments', targets.paymentsOutbox, priceTopics, handlePrices);

  const ledger = new LedgerBatches({ pool, log });
  const expiredHolds = startVoidingExpiredHolds({ pool, ledger, log });
  const charges = startRetentionCharges({ pool, pricesIn: storedPrices, now, log, everyMs: every.chargeEveryMs });
  const money = startMoney(opened, config, every);
  const lastPayouts = startLastPayouts({
    pool,
    now,
    log,
    rules: money.payoutRules,
    intervalMs: config.PAYOUT_INTERVAL_MS,
    everyMs: every.chargeEveryMs,
  });
  const unobserve = observeStranded(pool);
  const reconciliation = startReconciliation({ pool, log, chain: opened.chain, everyMs: every.reconcileEveryMs });

  const implementations = implementationsOf(config, {
    wallets,
    pricesIn: storedPrices,
    payoutRules: money.payoutRules,
    ledger,
    opened,
    now,
  });
  return {
    implementations,
    checks: {
      'events of data': data.lag,
      'events of blobs': blobs.lag,
      'events of payments': payments.lag,
      ledger: reconciliation.check,
      chain: opened.check,
      ...money.checks,
    },
    failed: Promise.race([data.failed, blobs.failed, payments.failed]),
    stop: async () => {
      unobserve();
      await Promise.all([
        data.stop(),
        blobs.stop(),
        payments.stop(),
        expiredHolds.stop(),
        charges.stop(),
        lastPayouts.stop(),
        reconciliation.stop(),
        money.stop(),
      ]);
      await ledger.idle();
    },
  };
}

interface Served extends Pick<HandlerOptions, 'wallets' | 'pricesIn' | 'payoutRules' | 'now'> {
  ledger: LedgerBatches;
  opened: OpenChain;
}

/** What other services may call. */
function implementationsOf(config: FinanceConfig, { ledger, opened, wallets, ...served }: Served) {
  const grants = { pool: wallets.pool, prefix: config.ADDRESS_PREFIX, chain: opened.grants };
  const finance: Implementation<FinanceDefinition> = {
    definition: financeDefinition,
    access: { gateway: '*' } satisfies AccessTo<FinanceDefinition>,
    handlers: { ...financeHandlers({ ...served, wallets, faucet: opened.faucet }), ...grantHandlers(grants) },
  };
  // Money is moved by services that have a reason to; the gateway, which strangers reach, is none of them.
  const transfers: Implementation<LedgerDefinition> = {
    definition: ledgerDefinition,
    access: { payments: '*' } satisfies AccessTo<LedgerDefinition>,
    handlers: ledgerHandlers({ wallets, ledger, takesPlayMoney: config.CHAIN === 'simulated' }),
  };
  const chain: Implementation<ChainDefinition> = {
    definition: chainDefinition,
    access: { payments: '*' } satisfies AccessTo<ChainDefinition>,
    handlers: {
      ...chainHandlers({
        chain: opened.chain,
        prefix: config.ADDRESS_PREFIX,
        denom: config.CHAIN_DENOM,
        address: opened.signing.sender,
        memoBytesMax: config.CHAIN_MEMO_BYTES_MAX,
      }),
      ...deductionHandlers(grants),
    },
  };
  return [finance, transfers, chain];
}
