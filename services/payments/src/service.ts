import { join } from 'node:path';
import { outboxImplementation } from '@granary/shared/bus/outbox';
import { readableBy } from '@granary/shared/bus/subscribers';
import { createSignal } from '@granary/shared/concurrency/signal';
import { readConfig } from '@granary/shared/config';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { ChainDefinition } from '@granary/shared/gen/granary/finance/v1/Chain';
import type { LedgerDefinition } from '@granary/shared/gen/granary/finance/v1/Ledger';
import { openClient, type OpenClient, type Target } from '@granary/shared/grpc/client';
import type { PaymentsDefinition } from '@granary/shared/gen/granary/payments/v1/Payments';
import { loadService } from '@granary/shared/rpc/protos';
import type { Pool } from '@granary/shared/postgres/pool';
import type { Implementation } from '@granary/shared/rpc/implementation';
import { stopTogether } from '@granary/shared/service/lifecycle';
import { RequiredAddresses } from '@granary/shared/service/required-addresses';
import type { Schema } from '@granary/shared/service/schema';
import {
  startService,
  type Context,
  type Overrides,
  type Parts,
  type RunningService,
} from '@granary/shared/service/start';
import { paymentsAccess } from './access';
import { priceConfig, type PaymentsConfig, type PriceConfig } from './config';
import { paymentsHandlers } from './handlers';
import { setPrices, type PriceList } from './prices';
import { validSeconds } from './quotes/offer';
import { startQuoteKeyRotation, storedQuoteKeys } from './quotes/quote-keys';
import { setRates, storedRates } from './quotes/rates';
import { checkSettlement, observeSettlement } from './settlement/observe-settlement';
import { startSettlement } from './settlement/start-settlement';
import { ratesOf, SettlementNetworks } from './settlement-networks';
import { AgentPayments } from './spending/agent-payments';
import { RepeatedSpends, startForgettingSpends } from './spending/repeated-spends';
import { startResolvingWrites } from './spending/held-writes';
import { Verifier } from './verify/verifier';

const usualNetworkEveryMs = 4_000;
const usualResolveEveryMs = 5_000;

export const paymentsDefinition = loadService<PaymentsDefinition>('payments', 'Payments');
const ledgerDefinition = loadService<LedgerDefinition>('finance', 'Ledger');
const chainDefinition = loadService<ChainDefinition>('finance', 'Chain');
const dataDefinition = loadService<DataDefinition>('data', 'Data');

export interface PaymentsOverrides extends Overrides {
  now?: () => Date;
  /** The ledger of finance, which starts after this service. */
  ledger?: () => Target<LedgerDefinition>;
  /** The chain of finance. */
  chain?: () => Target<ChainDefinition>;
  /** Data, which starts after this service. */
  data?: () => Target<DataDefinition>;
  /** How often payments are looked for that no process settles. */
  settleEveryMs?: number;
  /** How often nodes of EVM networks are asked about what this service has sent. */
  networkEveryMs?: number;
  /** How often writes are looked for of which no gateway knows whether they were done. */
  resolveEveryMs?: number;
}

export const paymentsSchema: Schema = {
  migrations: join(__dirname, '..', 'migrations'),
  bus: true,
  storeSettings: (pool, environment) => storePrices(pool, readConfig(priceConfig, environment), new Date()),
};

/**
 * The payments service: the configured prices of the platform, which it publishes; offers of paid reads, and what agent
 * keys pay. Throws a ConfigError when the address of finance or data is missing, see also `SettlementNetworks.open`.
 */
export async function startPayments(
  config: PaymentsConfig,
  overrides: PaymentsOverrides = {},
): Promise<RunningService> {
  const addresses = new RequiredAddresses(config);
  if (!overrides.ledger) addresses.of('FINANCE_ADDRESS');
  if (!overrides.data) addresses.of('DATA_ADDRESS');
  addresses.assertComplete();
  return startService('payments', config, paymentsSchema, overrides, (context) => assemble(context, config, overrides));
}

async function assemble(context: Context, config: PaymentsConfig, overrides: PaymentsOverrides): Promise<Parts> {
  const { pool, log, clock, trust, onStop } = context;
  const { now = clock.now, networkEveryMs = usualNetworkEveryMs, resolveEveryMs = usualResolveEveryMs } = overrides;
  const clients = openClients(config, overrides, (service, options) => ({
    log,
    credentials: () => trust.towards(service),
    ...options,
  }));
  onStop(() => clients.close());
  const { ledger, data, chain } = clients;
  if (config.MIGRATIONS === 'start') await storePrices(pool, config, now());
  const networks = await SettlementNetworks.open({ config, pool, log, now, chain, everyMs: networkEveryMs });
  onStop(() => networks.stop());
  const offers = {
    APP_SHARE_PERCENT: config.APP_SHARE_PERCENT,
    keys: storedQuoteKeys(pool),
    now,
    rates: storedRates(pool, validSeconds),
    methods: () => networks.methods(),
    areKnown: () => networks.areKnown(),
    minUtia: (network: string) => networks.minUtia(network),
    networks: networks.settled,
  };
  const verifier = new Verifier(networks.verifiers, now);
  const { strandedPayments, ...settlement } = startSettlement({
    config,
    pool,
    log,
    now,
    ledger,
    offers,
    verifier,
    networks: networks.settled,
    areKnown: offers.areKnown,
    everyMs: overrides.settleEveryMs,
  });
  const tasks = [
    settlement,
    startQuoteKeyRotation(pool, log),
    startForgettingSpends(pool, log),
    startResolvingWrites({ pool, log, now, ledger, data, everyMs: resolveEveryMs }),
  ];
  onStop(() => stopTogether(tasks));
  onStop(observeSettlement(pool));
  const agentPayments = new AgentPayments({ ...config, ledger, data, now });
  const payments: Implementation<PaymentsDefinition> = {
    definition: paymentsDefinition,
    access: paymentsAccess,
    handlers: paymentsHandlers({
      prices: config,
      offers,
      verifier,
      spending: new RepeatedSpends(pool, agentPayments, config.AGENT_RESERVATION_MS),
      ...settlement,
    }),
  };
  const appended = createSignal();
  const outbox = readableBy(['finance'], outboxImplementation({ pool, log, signer: trust.signer, appended }));
  return {
    implementations: [payments, outbox],
    appended,
    checks: { settlement: () => checkSettlement(pool, strandedPayments), ...networks.checks },
    failed: networks.failed,
  };
}

/** Stores what the configuration says that all copies share: prices of retention, and rates of tokens. */
async function storePrices(pool: Pool, config: PriceConfig, now: Date): Promise<void> {
  await setRates(pool, ratesOf(config));
  const prices: PriceList = {
    retention_utia_per_gib_day: BigInt(config.RETENTION_UTIA_PER_GIB_DAY),
    retention_free_days: BigInt(config.RETENTION_FREE_DAYS),
  };
  await setPrices(pool, prices, now);
}

type ClientOptions = Parameters<typeof openClient>[2];

/** Clients of finance and data, opened when they are used first: both start after this service. */
function openClients(
  { FINANCE_ADDRESS: financeAddress, DATA_ADDRESS: dataAddress }: PaymentsConfig,
  overrides: Pick<PaymentsOverrides, 'ledger' | 'chain' | 'data'>,
  options: (service: 'finance' | 'data', own: Pick<ClientOptions, 'repeatable' | 'multiplexed'>) => ClientOptions,
) {
  let ledger: OpenClient<LedgerDefinition> | undefined;
  let chain: OpenClient<ChainDefinition> | undefined;
  let data: OpenClient<DataDefinition> | undefined;
  return {
    ledger: () => {
      const target = () => overrides.ledger?.() ?? { address: financeAddress! };
      const methods = { repeatable: ['apply', 'getBalances', 'listHolds'], multiplexed: ['apply'] };
      return (ledger ??= openClient(ledgerDefinition, target(), options('finance', methods))).client;
    },
    chain: () => {
      const target = () => overrides.chain?.() ?? { address: financeAddress! };
      // A broadcast is repeated by those who know that the one before may have had its effect.
      const methods = { repeatable: ['describeChain', 'findTransaction', 'getAccount'] };
      return (chain ??= openClient(chainDefinition, target(), options('finance', methods))).client;
    },
    data: () => {
      const target = () => overrides.data?.() ?? { address: dataAddress! };
      return (data ??= openClient(dataDefinition, target(), options('data', { repeatable: ['closeWrite'] }))).client;
    },
    close: () => {
      ledger?.close();
      chain?.close();
      data?.close();
    },
  };
}
