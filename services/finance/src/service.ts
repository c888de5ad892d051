import { join } from 'node:path';
import type { Consumer } from '@granary/shared/bus/consumer';
import type { Handle } from '@granary/shared/bus/inbox';
import type { OutboxDefinition } from '@granary/shared/gen/granary/events/v1/Outbox';
import type { ChainDefinition } from '@granary/shared/gen/granary/finance/v1/Chain';
import type { FinanceDefinition } from '@granary/shared/gen/granary/finance/v1/Finance';
import type { LedgerDefinition } from '@granary/shared/gen/granary/finance/v1/Ledger';
import type { Target } from '@granary/shared/grpc/client';
import { loadService } from '@granary/shared/rpc/protos';
import type { Implementation } from '@granary/shared/rpc/implementation';
import { stopTogether } from '@granary/shared/service/lifecycle';
import { openConsumer } from '@granary/shared/service/open-consumer';
import { RequiredAddresses } from '@granary/shared/service/required-addresses';
import type { Schema } from '@granary/shared/service/schema';
import {
  startService,
  type Context,
  type Overrides,
  type Parts,
  type RunningService,
} from '@granary/shared/service/start';
import { chainAccess, financeAccess, ledgerAccess } from './access';
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

export const financeSchema: Schema = { migrations: join(__dirname, '..', 'migrations'), bus: true, idempotency: true };

/**
 * The finance service: ledger, wallets, payouts, what retention costs. Throws a ConfigError for an address that is
 * missing, a KeyFileError or WalletOriginError when the seed cannot be used.
 */
export async function startFinance(config: FinanceConfig, overrides: FinanceOverrides = {}): Promise<RunningService> {
  const addresses = new RequiredAddresses(config);
  const outboxes = {
    payments: overrides.paymentsOutbox ?? addresses.of('PAYMENTS_ADDRESS'),
    data: overrides.dataOutbox ?? addresses.of('DATA_ADDRESS'),
    blobs: overrides.blobsOutbox ?? addresses.of('BLOBS_ADDRESS'),
  };
  addresses.assertComplete();
  return startService('finance', config, financeSchema, overrides, (context) =>
    assemble(context, config, outboxes, overrides),
  );
}

type Outboxes = Record<'payments' | 'data' | 'blobs', Target<OutboxDefinition>>;

/** Consumes the events from which the finance service knows usage and prices. */
function openConsumers(context: Context, outboxes: Outboxes): Record<keyof Outboxes, Consumer> {
  const consume = (from: keyof Outboxes, topics: string[], handle: Handle): Consumer =>
    openConsumer(context, { name: `finance-${from}`, from, topics, handle, outbox: outboxes[from] });
  return {
    data: consume('data', usageTopics, usageHandler()),
    blobs: consume('blobs', usageTopics, usageHandler()),
    payments: consume('payments', priceTopics, handlePrices),
  };
}

async function assemble(
  context: Context,
  config: FinanceConfig,
  outboxes: Outboxes,
  { now = context.clock.now, ...every }: FinanceOverrides,
): Promise<Parts> {
  const { pool, log, onStop } = context;
  // A seed is only made for a database that has none: in place of a lost one it would be another one.
  const isNew = !(await hasWalletOrigin(pool));
  const keys = await openKeyFile(config.KEY_FILE, { create: config.KEY_FILE_CREATE && isNew, isNew });
  const wallets = { pool, keys, addressPrefix: config.ADDRESS_PREFIX };
  await assertWalletOrigin(wallets);
  const opened = await openChain(pool, keys, config, log);

  const ledger = new LedgerBatches({ pool, log });
  onStop(() => ledger.idle());
  const { data, blobs, payments } = openConsumers(context, outboxes);
  const money = startMoney(opened, config, every);
  const reconciliation = startReconciliation({ pool, log, chain: opened.chain, everyMs: every.reconcileEveryMs });
  const tasks = [
    money,
    reconciliation,
    startVoidingExpiredHolds({ pool, ledger, log }),
    startRetentionCharges({ pool, pricesIn: storedPrices, now, log, everyMs: every.chargeEveryMs }),
    startLastPayouts({
      pool,
      now,
      log,
      rules: money.payoutRules,
      intervalMs: config.PAYOUT_INTERVAL_MS,
      everyMs: every.chargeEveryMs,
    }),
  ];
  onStop(() => stopTogether(tasks));
  onStop(observeStranded(pool));
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
  };
}

interface Served extends Pick<HandlerOptions, 'wallets' | 'pricesIn' | 'payoutRules' | 'now'> {
  ledger: LedgerBatches;
  opened: OpenChain;
}

/** The gRPC services that other processes may call: Finance, Ledger and Chain. */
function implementationsOf(config: FinanceConfig, { ledger, opened, wallets, ...served }: Served) {
  const grants = { pool: wallets.pool, prefix: config.ADDRESS_PREFIX, chain: opened.grants };
  const finance: Implementation<FinanceDefinition> = {
    definition: financeDefinition,
    access: financeAccess,
    handlers: { ...financeHandlers({ ...served, wallets, faucet: opened.faucet }), ...grantHandlers(grants) },
  };
  const transfers: Implementation<LedgerDefinition> = {
    definition: ledgerDefinition,
    access: ledgerAccess,
    handlers: ledgerHandlers({ wallets, ledger, takesPlayMoney: config.CHAIN === 'simulated' }),
  };
  const chain: Implementation<ChainDefinition> = {
    definition: chainDefinition,
    access: chainAccess,
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
