import { wrongConfig } from '@granary/shared/config';
import type { ChainDefinition } from '@granary/shared/gen/granary/finance/v1/Chain';
import type { ChainDescription } from '@granary/shared/gen/granary/finance/v1/ChainDescription';
import type { Check } from '@granary/shared/health/check';
import type { Logger } from '@granary/shared/logger';
import type { Pool } from '@granary/shared/postgres/pool';
import type { Client } from '@granary/shared/rpc/types';
import { StartError } from '@granary/shared/start-error';
import type { PaymentsConfig, PriceConfig } from './config';
import type { PaymentMethod } from './networks/payment-method';
import type { OpenScheme, PaymentAddress, Scheme } from './networks/scheme';
import type { SettlementNetwork } from './networks/settlement-network';
import { findWalletChain } from './networks/wallet-chain';
import { schemes } from './schemes/schemes';
import { parseMinimums } from './settings/minimums';
import { uncreditedMoney } from './settings/mixed-money';
import { parsePaymentAddresses } from './settings/payment-addresses';
import { parseRates } from './settings/rates';
import type { ExactVerifier } from './verify/exact-verifier';

const addressesOf = (scheme: Scheme, addresses: readonly PaymentAddress[]): PaymentAddress[] =>
  addresses.filter(({ network }) => scheme.takes(network));

/** Units for 1 TIA, by the CAIP-2 network and the address of a token. */
export function ratesOf(config: PriceConfig): ReadonlyMap<string, bigint> {
  const addresses = parsePaymentAddresses(config.X402_PAY_TO);
  const taken = schemes.filter((scheme) => addressesOf(scheme, addresses).length > 0);
  return new Map([...parseRates(config.X402_RATES), ...taken.flatMap(({ fixedRates }) => [...(fixedRates ?? [])])]);
}

export interface NetworkOptions {
  config: PaymentsConfig;
  pool: Pool;
  log: Logger;
  now: () => Date;
  /** The chain of finance. */
  chain: () => Client<ChainDefinition>;
  /** How often nodes are asked whether they can be used, and about what this service has sent. */
  everyMs: number;
}

/**
 * `waiting`: finance, which starts later, has not named the chain of the wallets yet; until then nothing is settled on
 * that chain. `complete`: all networks of the configuration are open. `failed`: payments on them cannot be settled or
 * credited with the wallets on that chain.
 */
type State = 'waiting' | 'complete' | 'failed';

/** The networks on which payments are verified and settled, of all schemes. */
export class SettlementNetworks {
  /** The networks on which payments are settled, by their CAIP-2 names. */
  readonly settled = new Map<string, SettlementNetwork>();
  readonly checks: Readonly<Record<string, Check>>;
  /**
   * Rejects with a StartError once the chain of the wallets turns out to be another one than that of the configuration,
   * or one whose wallets cannot be credited for what is paid.
   */
  readonly failed: Promise<never>;
  private state: State = 'waiting';
  private fail: (error: StartError) => void = () => {};
  private readonly search: { stop(): Promise<void> } | undefined;

  private constructor(
    private readonly open: readonly OpenScheme[],
    private readonly addresses: readonly PaymentAddress[],
    private readonly minimumOn: (network: string) => bigint,
    { chain, log }: NetworkOptions,
  ) {
    for (const network of open.flatMap(({ networks }) => networks)) this.settled.set(network.id, network);
    this.checks = Object.fromEntries(open.flatMap(({ checks }) => Object.entries(checks ?? {})));
    this.failed = new Promise<never>((_, reject) => {
      this.fail = reject;
    });
    this.failed.catch(() => {});
    const onKnown = (description: ChainDescription) => this.onWalletChain(description);
    if (addresses.length > 0) this.search = findWalletChain({ chain, log, onKnown });
    else this.state = 'complete';
  }

  /**
   * Opens the networks of the configuration. Throws a ConfigError for an address on a network without nodes, since what
   * is paid there could not be collected; and the errors of schemes.
   */
  static async open(options: NetworkOptions): Promise<SettlementNetworks> {
    const { config, ...context } = options;
    const addresses = parsePaymentAddresses(config.X402_PAY_TO);
    const { usual, byNetwork } = parseMinimums(config.X402_MIN_UTIA);
    const minimumOn = (network: string) => byNetwork.get(network) ?? usual;
    for (const scheme of schemes) assertNodes(scheme, config, addressesOf(scheme, addresses));
    const open: OpenScheme[] = [];
    try {
      for (const scheme of schemes) {
        open.push(await scheme.open(config, { ...context, addresses: addressesOf(scheme, addresses), minimumOn }));
      }
    } catch (error) {
      await stopAll(open);
      throw error;
    }
    return new SettlementNetworks(open, addresses, minimumOn, options);
  }

  get verifiers(): ExactVerifier[] {
    return this.open.map(({ verifier }) => verifier);
  }

  /** The ways to pay, in the order in which they are offered, as far as they are known yet. */
  methods(): PaymentMethod[] {
    return this.open.flatMap((scheme) => scheme.methods());
  }

  /** Whether all networks are known on which payments are taken. */
  areKnown(): boolean {
    return this.state === 'complete' || !this.open.some(({ openWalletChain }) => openWalletChain);
  }

  /** The least that is settled on a network, in utia; 0 where this service pays no fees. */
  minUtia(network: string): bigint {
    return this.settled.get(network)?.paysFees ? this.minimumOn(network) : 0n;
  }

  async stop(): Promise<void> {
    // Its end may open the chain of the wallets.
    await this.search?.stop();
    await stopAll(this.open);
  }

  private onWalletChain(description: ChainDescription): void {
    const problem = problemWith(this.addresses, `cosmos:${description.chainId}`);
    if (problem !== undefined) {
      this.state = 'failed';
      this.fail(new StartError(problem));
      return;
    }
    for (const { openWalletChain } of this.open) {
      const network = openWalletChain?.(description);
      if (network) this.settled.set(network.id, network);
    }
    this.state = 'complete';
  }
}

async function stopAll(open: readonly OpenScheme[]): Promise<void> {
  await Promise.all(open.map(async (scheme) => scheme.stop?.()));
}

/** Throws a ConfigError for an address on a network without nodes. */
function assertNodes({ nodes }: Scheme, config: PaymentsConfig, addresses: readonly PaymentAddress[]): void {
  if (!nodes) return;
  const urls = nodes.in(config);
  const missing = addresses.map(({ network }) => network).filter((network) => !urls.has(network));
  if (missing.length === 0) return;
  throw wrongConfig([[nodes.name, `nodes of ${missing.join(', ')} are missing, which X402_PAY_TO names`]]);
}

/** Why payments to these addresses cannot be settled or credited with the wallets on a chain. */
function problemWith(addresses: readonly PaymentAddress[], chain: string): string | undefined {
  for (const scheme of schemes) {
    const problem = scheme.problemWithWallets?.(addresses, chain);
    if (problem !== undefined) return problem;
  }
  const uncredited = uncreditedMoney(addresses, chain);
  return uncredited && `X402_PAY_TO: ${uncredited}`;
}
