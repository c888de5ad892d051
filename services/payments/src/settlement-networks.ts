import { ConfigError } from '@granary/shared/config';
import type { Check } from '@granary/shared/health/check';
import type { ChainDefinition } from '@granary/shared/gen/granary/finance/v1/Chain';
import type { ChainDescription } from '@granary/shared/gen/granary/finance/v1/ChainDescription';
import type { Logger } from '@granary/shared/logger';
import type { Pool } from '@granary/shared/postgres/pool';
import type { Client } from '@granary/shared/rpc/types';
import { StartError } from '@granary/shared/start-error';
import type { PaymentsConfig, PriceConfig } from './config';
import { assetKeyOf, parseEvmAssets, type EvmAsset } from './evm-assets';
import type { EvmNetworks } from './evm-rpc/open-evm-networks';
import type { SettlementNetwork } from './networks/settlement-network';
import { CosmosSettlement, type ChainClient } from './cosmos/cosmos-settlement';
import { GrantPayments } from './cosmos/grant-payments';
import { SentTransactions } from './cosmos/sent-transactions';
import { watchNetwork } from './networks/watch-network';
import { findWalletChain } from './cosmos/wallet-chain';
import { maxFeeOn } from './settings/max-fees';
import { uncreditedMoney } from './mixed-money';
import { isOnCosmos, ofWallets, parsePaymentAddresses, type PaymentAddress } from './payment-addresses';
import { parseMinimums, type Minimums } from './settings/minimums';
import { paymentMethods, type PaymentMethod } from './quotes/payment-methods';
import { parseRates } from './settings/rates';
import { evmRpcUrls, solanaRpcUrls, type RpcUrls } from './rpc-urls-setting';
import { parseSolanaAssets } from './solana-assets';
import { parseSolanaFeePayers } from './solana-fee-payers';
import type { SolanaNetworks } from './solana-rpc/open-solana-networks';
import type { CosmosNetwork } from './verify/cosmos-exact';
import type { SolanaSettings } from './verify/solana-exact';
import { SimulatedEvm } from './simulated-evm/simulated-evm';
import { simulatedAsset } from './simulated-network';
import { playMoneyNetwork, simulatedChainPrefix } from '@granary/shared/play-money';

/** What a TIA is worth in the token of the simulated network. */
const simulatedUnitsPerTia = 1_000_000n;

const takenNetworks = ({ X402_PAY_TO: addresses }: Pick<PaymentsConfig, 'X402_PAY_TO'>): string[] =>
  parsePaymentAddresses(addresses).map(({ network }) => network);

/** The tokens in which payments are verified: those of the configuration, and that of the simulated network if payments on it are taken. */
export function acceptedAssets(config: PaymentsConfig): EvmAsset[] {
  const assets = parseEvmAssets(config.X402_EVM_ASSETS);
  return takenNetworks(config).includes(playMoneyNetwork) ? [...assets, simulatedAsset] : assets;
}

/** Units for 1 TIA by token. */
export function ratesOf(config: PriceConfig): ReadonlyMap<string, bigint> {
  const rates = new Map(parseRates(config.X402_RATES));
  if (takenNetworks(config).includes(playMoneyNetwork)) rates.set(assetKeyOf(simulatedAsset), simulatedUnitsPerTia);
  return rates;
}

/** The networks of a configuration, of which that of the wallets becomes known later. */
export interface Networks {
  methods: () => readonly PaymentMethod[];
  /** Whether finance has named the chain of the wallets, if that is needed. */
  areKnown: () => boolean;
  cosmos: () => readonly CosmosNetwork[];
  /** The least that is settled on a network, in utia; 0 where this service pays no fees, or in play money. */
  minUtia: (network: string) => bigint;
  /** On which payments are settled, by their CAIP-2 names. */
  settled: ReadonlyMap<string, SettlementNetwork>;
  /** What is verified on Solana. */
  solana: SolanaSettings;
  /** The accounts that pay for settlements on EVM networks, as `GET /x402/supported` lists them. */
  evmSigners: Record<string, string[]>;
  checks: Record<string, Check>;
  /**
   * Rejects with a StartError once the chain of the wallets turns out to be another one than that of the configuration,
   * or one whose wallets cannot be credited for what is paid.
   */
  failed: Promise<never>;
  stop(): Promise<void>;
}

export interface NetworkOptions {
  config: PaymentsConfig;
  pool: Pool;
  log: Logger;
  now: () => Date;
  /** Of finance. */
  chain: () => ChainClient & Pick<Client<ChainDefinition>, 'describeChain'>;
  /** How often nodes of EVM networks and Solana are asked whether they can be used, and about what this service has sent. */
  everyMs: number;
}

const memoBytesMax = 256;
/**
 * How long a request waits at most for the block of a transaction that its payer has sent: the call that verifies it
 * takes no longer.
 */
const sentWaitMsMax = 5_000;

/**
 * Opens the networks of X402_PAY_TO, EVM_RPC_URLS and SOLANA_RPC_URLS, see also `openEvmNetworks` and
 * `openSolanaNetworks`. Throws a ConfigError for one of these on which payments cannot be settled: what is paid there
 * could not be collected. Which chain that of the wallets is, is known once finance answers, which starts later: see
 * `failed`.
 */
export async function openNetworks(options: NetworkOptions): Promise<Networks> {
  const { config, pool, log, now, chain, everyMs } = options;
  const addresses = parsePaymentAddresses(config.X402_PAY_TO);
  const assets = acceptedAssets(config);
  const minimums = parseMinimums(config.X402_MIN_UTIA);
  const settled = new Map<string, SettlementNetwork>();
  if (takenNetworks(config).includes(playMoneyNetwork)) settled.set(playMoneyNetwork, new SimulatedEvm(pool, now));
  const [evmUrls, solanaUrls] = [evmRpcUrls.in(config), solanaRpcUrls.in(config)];
  assertSettled(addresses, new Set([...settled.keys(), ...evmUrls.keys(), ...solanaUrls.keys()]));
  const evm = await openEvm(options, evmUrls);
  const solana = await openSolana(options, solanaUrls);
  for (const network of [...(evm?.networks ?? []), ...(solana?.networks ?? [])]) settled.set(network.id, network);
  const solanaAssets = parseSolanaAssets(config.X402_SOLANA_ASSETS);
  const feePayers = [
    ...new Set([...(solana ? [solana.feePayer] : []), ...parseSolanaFeePayers(config.X402_SOLANA_FEE_PAYERS)]),
  ];
  const methodsOf = (known: readonly PaymentAddress[]) =>
    paymentMethods(known, assets, { assets: solanaAssets, feePayer: feePayers[0] ?? '' });
  const known = withoutWallets(addresses);
  let methods = methodsOf(known);
  let areKnown = !addresses.some(isOnCosmos);
  let cosmos = cosmosNetworksOf(known);
  let watching: { stop(): Promise<void> } | undefined;
  let fail: (error: StartError) => void = () => {};
  const failed = new Promise<never>((_, reject) => {
    fail = reject;
  });
  failed.catch(() => {});
  const onChain = addresses.find(isOnCosmos);
  const onKnown = ({ chainId, address, ...description }: ChainDescription) => {
    const network = `cosmos:${chainId}`;
    const problem = problemWith(addresses, network);
    if (problem) fail(problem);
    if (problem || !onChain) return;
    const sent = new SentTransactions({
      network,
      chain,
      now,
      waitMs: Math.min(config.X402_SETTLE_WAIT_MS, sentWaitMsMax),
    });
    const grants = new GrantPayments(network, chain, now, minimumOn(minimums, network));
    const settlement = new CosmosSettlement(network, chain, now, sent, grants);
    watching = watchNetwork({ watch: () => settlement.watch(address, log) }, everyMs);
    settled.set(network, settlement);
    if (onChain.network === ofWallets) methods = methodsOf([{ network, address }, ...known]);
    cosmos = [{ network, ...description }];
    areKnown = true;
  };
  const search = addresses.length > 0 ? findWalletChain({ chain, log, onKnown }) : undefined;
  return {
    methods: () => methods,
    areKnown: () => areKnown,
    cosmos: () => cosmos,
    // Payers on Cosmos chains pay the fees themselves.
    minUtia: (network) => (network.startsWith('cosmos:') ? 0n : minimumOn(minimums, network)),
    settled,
    solana: { assets: solanaAssets, feePayers },
    evmSigners: evm ? { 'eip155:*': [evm.address] } : {},
    checks: { ...evm?.checks, ...solana?.checks },
    failed,
    stop: async () => {
      // Its end may begin the watch.
      await search?.stop();
      await Promise.all([watching?.stop(), evm?.stop(), solana?.stop()]);
    },
  };
}

/** What a settlement that costs this service fees has to bring in. */
const minimumOn = ({ usual, byNetwork }: Minimums, network: string): bigint =>
  network === playMoneyNetwork || network.startsWith(`cosmos:${simulatedChainPrefix}`)
    ? 0n
    : (byNetwork.get(network) ?? usual);

const withoutWallets = (addresses: readonly PaymentAddress[]): PaymentAddress[] =>
  addresses.filter(({ network }) => network !== ofWallets);

function assertSettled(addresses: readonly PaymentAddress[], settled: ReadonlySet<string>): void {
  const networks = addresses.map(({ network }) => network);
  for (const [namespace, setting] of [
    ['eip155:', 'EVM_RPC_URLS'],
    ['solana:', 'SOLANA_RPC_URLS'],
  ] as const) {
    const missing = networks.filter((network) => network.startsWith(namespace) && !settled.has(network));
    if (missing.length === 0) continue;
    throw wrong(`${setting}: nodes of ${missing.join(', ')} are missing, which X402_PAY_TO names`);
  }
}

/** Why the networks of X402_PAY_TO do not fit to the chain of the wallets. */
function problemWith(addresses: readonly PaymentAddress[], chain: string): StartError | undefined {
  const another = addresses.find(({ network }) => network.startsWith('cosmos:') && network !== chain);
  if (another) return anotherChain(another.network, chain);
  const problem = uncreditedMoney(addresses, chain);
  return problem === undefined ? undefined : new StartError(`X402_PAY_TO: ${problem}`);
}

const anotherChain = (configured: string, ofTheWallets: string) =>
  new StartError(
    `X402_PAY_TO names ${configured}, but of the Cosmos chains payments are settled on that of the wallets only, ${ofTheWallets}. Set X402_PAY_TO=wallets, or name ${ofTheWallets} with an address, or have finance use the other chain (CHAIN, CHAIN_ID).`,
  );

const wrong = (problem: string) => new ConfigError(`The configuration is wrong:\n  ${problem}`);

/** The EVM networks whose nodes are configured; their libraries are loaded only if there are any. */
async function openEvm(
  { config, pool, log, everyMs }: NetworkOptions,
  urls: RpcUrls,
): Promise<EvmNetworks | undefined> {
  if (urls.size === 0) return undefined;
  if (urls.has(playMoneyNetwork)) throw wrong(`EVM_RPC_URLS: ${playMoneyNetwork} is the simulated network`);
  const { openEvmNetworks } = await import('@granary/payments/evm-rpc/open-evm-networks');
  return openEvmNetworks(pool, log, {
    urls,
    keyFile: config.X402_KEY_FILE!,
    timeoutMs: config.EVM_RPC_TIMEOUT_MS,
    everyMs,
    depthBlocks: config.EVM_DEPTH_BLOCKS,
    replaceAfterMs: config.EVM_REPLACE_AFTER_MS,
    waitMs: config.X402_SETTLE_WAIT_MS,
    maxFeeOn: (network) => maxFeeOn(network, config.EVM_MAX_FEE_GWEI),
  });
}

/** The same of Solana, with the address that pays the fees. */
async function openSolana(
  { config, log, now, everyMs }: NetworkOptions,
  urls: RpcUrls,
): Promise<(SolanaNetworks & { feePayer: string }) | undefined> {
  if (urls.size === 0) return undefined;
  const { openSolanaNetworks } = await import('@granary/payments/solana-rpc/open-solana-networks');
  const { openFeeKey } = await import('@granary/payments/solana-rpc/fee-key');
  const key = await openFeeKey(config.X402_KEY_FILE!);
  const { SOLANA_RPC_TIMEOUT_MS: timeoutMs, SOLANA_COMMITMENT: commitment } = config;
  const networks = await openSolanaNetworks(log, { urls, key, timeoutMs, commitment, everyMs, now });
  return { ...networks, feePayer: key.address };
}

/** The chains of configured addresses, as far as those say it. */
const cosmosNetworksOf = (addresses: readonly PaymentAddress[]): CosmosNetwork[] =>
  addresses
    .filter((each) => each.network !== ofWallets && isOnCosmos(each))
    .map(({ network, address }) => ({
      ...{ network, prefix: address.slice(0, address.lastIndexOf('1')), denom: 'utia', memoBytesMax },
    }));
