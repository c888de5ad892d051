import type { ChainDefinition } from '@granary/shared/gen/granary/finance/v1/Chain';
import type { ChainDescription } from '@granary/shared/gen/granary/finance/v1/ChainDescription';
import type { Check } from '@granary/shared/health/check';
import type { Logger } from '@granary/shared/logger';
import type { Pool } from '@granary/shared/postgres/pool';
import type { Client } from '@granary/shared/rpc/types';
import type { z } from 'zod';
import type { ExactVerifier } from '../verify/exact-verifier';
import type { PaymentMethod } from './payment-method';
import type { SettlementNetwork } from './settlement-network';

/** Stands for the chain of the wallets, and the address of the platform on it. */
export const ofWallets = 'wallets';

/** The address to which payments on a network go. */
export interface PaymentAddress {
  /** CAIP-2, for example `cosmos:celestia`; or `wallets`. */
  network: string;
  /** Empty: known to the service that has the chain of the wallets. */
  address: string;
}

/**
 * The worth of the money of a network: play money is made by this service, test money is given away by faucets. The id
 * of a Cosmos chain does not say whether its money is test or real.
 */
export type Worth = 'play' | 'test' | 'real' | 'test or real';

/** A setting with the nodes of networks, by the CAIP-2 names of these. */
export interface NodesSetting<Config> {
  readonly name: string;
  /** Throws a ConfigError when it is in a file that is wrong. */
  in(config: Config): ReadonlyMap<string, readonly string[]>;
}

/** The settings that several schemes read: a type, which unlike an interface fits the settings of any scheme. */
export type CommonSettings = {
  readonly X402_KEY_FILE?: string | undefined;
  readonly X402_SETTLE_WAIT_MS: number;
};

/** The parts of the service that a scheme opens its networks with. */
export interface SchemeContext {
  pool: Pool;
  log: Logger;
  now: () => Date;
  /** The chain of finance. */
  chain: () => Client<ChainDefinition>;
  /** How often nodes are asked whether they can be used, and about what this service has sent. */
  everyMs: number;
  /** The addresses of X402_PAY_TO on networks of the scheme. */
  addresses: readonly PaymentAddress[];
  /** The least that a payment on a network is for where its settlement costs fees, in utia. */
  minimumOn: (network: string) => bigint;
}

/**
 * A scheme of payments: how the addresses and tokens of a family of networks are written, which settings it has, how a
 * payment is verified, and how it is settled. Each has a folder in `schemes`, and a line in `schemes/schemes.ts`.
 */
export interface Scheme<Settings extends z.ZodRawShape = z.ZodRawShape> {
  readonly settings: Settings;
  /** The setting with the nodes of its networks, which needs X402_KEY_FILE beside it. Absent: it has no nodes. */
  readonly nodes?: NodesSetting<z.infer<z.ZodObject<Settings>>>;
  /** An address as X402_PAY_TO writes it. */
  readonly example?: string;
  /** A word in X402_PAY_TO that stands for an address. */
  readonly shorthand?: { word: string; address: PaymentAddress };
  /** X402_PAY_TO may name one of its networks only. */
  readonly takesOneNetwork?: true;
  /** Whether a network is of this scheme. */
  takes(network: string): boolean;
  /** An address of a setting in the form in which it is offered. Absent: each is offered as it is written. */
  toOffered?(address: string): string;
  /** Whether an address on one of its networks has the form of one. */
  isAddress(address: PaymentAddress): boolean;
  /** Why the address on a network is mistyped, although it has the form of one. */
  mistyped?(address: PaymentAddress): string | undefined;
  worthOf(network: string): Worth;
  /** The tokens that a name in X402_RATES stands for, as CAIP-2 networks and addresses; empty: none of this scheme. */
  tokensOf(name: string): string[];
  /** The account of a seed in a file that pays the fees of settlements, in a line for people. Throws a KeyFileError. */
  feeAccount?(keyFile: string): Promise<string>;
  /** Units for 1 TIA of tokens that are taken with an address on their network, by CAIP-2 network and address. */
  readonly fixedRates?: ReadonlyMap<string, bigint>;
  /**
   * Why payments to these addresses of X402_PAY_TO are not settled with the wallets on a chain, as `cosmos:` and its
   * id.
   */
  problemWithWallets?(addresses: readonly PaymentAddress[], chain: string): string | undefined;
  /** Opens its networks. Throws a StartError or a ConfigError for a configuration with which they cannot be used. */
  open(config: z.infer<z.ZodObject<Settings>> & CommonSettings, context: SchemeContext): Promise<OpenScheme>;
}

/** A scheme whose networks are open. */
export interface OpenScheme {
  readonly verifier: ExactVerifier;
  /** The networks on which payments are settled from the start. */
  readonly networks: readonly SettlementNetwork[];
  readonly checks?: Readonly<Record<string, Check>>;
  /** The ways to pay, in the order in which they are offered, as far as they are known yet. */
  methods(): readonly PaymentMethod[];
  /**
   * Opens the chain of the wallets, which finance has named. Absent: no payments are taken on it. Called at most once.
   */
  openWalletChain?: ((chain: ChainDescription) => SettlementNetwork) | undefined;
  stop?(): Promise<void>;
}
