import { z } from 'zod';
import { grpcAddress, whole } from '@granary/shared/config';
import { commonConfig } from '@granary/shared/service/common-config';
import type { PaymentAddress } from './networks/scheme';
import { schemes, schemeSettings } from './schemes/schemes';
import { areFeeTiers, feeTiersRule } from './settings/fee-tiers';
import { areMinimums, minimumsRule } from './settings/minimums';
import { mixedMoney } from './settings/mixed-money';
import {
  arePaymentAddresses,
  mistypedAddress,
  parsePaymentAddresses,
  paymentAddressesRule,
} from './settings/payment-addresses';
import { areRates, ratesRule } from './settings/rates';

function checkPaymentAddresses(text: string, context: z.RefinementCtx<string>): void {
  const problem = arePaymentAddresses(text) ? problemWith(parsePaymentAddresses(text)) : paymentAddressesRule;
  if (problem !== undefined) context.addIssue({ code: 'custom', message: problem });
}

const problemWith = (addresses: readonly PaymentAddress[]): string | undefined =>
  mistypedAddress(addresses) ?? mixedMoney(addresses);

const settings = commonConfig.extend({
  ...schemeSettings,
  /** Price of storing a GiB for a day, after the free days. */
  RETENTION_UTIA_PER_GIB_DAY: whole(0, Number.MAX_SAFE_INTEGER).default(1000),
  RETENTION_FREE_DAYS: whole(0, 36_500).default(30),
  /** Prices that POST /api/pricing/quote tells, of a KB of 1,024 bytes: that is stored, that is read, … */
  WRITE_UTIA_PER_KB: whole(0, Number.MAX_SAFE_INTEGER).default(0),
  READ_UTIA_PER_KB: whole(0, Number.MAX_SAFE_INTEGER).default(0),
  /** … and for each indexed field that a write fills. */
  INDEX_UTIA_PER_KB: whole(0, Number.MAX_SAFE_INTEGER).default(0),
  /** Price of an encrypted index; 0: none. */
  ENCRYPTED_INDEX_UTIA: whole(0, Number.MAX_SAFE_INTEGER).default(1_000_000),
  BROKER_FEE_PERCENT: z.string().refine(areFeeTiers, feeTiersRule).default('0'),
  /** The part of an application in what others pay for it, and the most that its own prices may say. */
  APP_SHARE_PERCENT: whole(0, 100).default(80),
  /** The addresses for x402 payments, by network; they are offered by scheme, then in this order; none: no payments. */
  X402_PAY_TO: z.string().superRefine(checkPaymentAddresses).default(''),
  /** The worth of tokens: units for 1 TIA. A token without a rate is not offered. */
  X402_RATES: z.string().refine(areRates, ratesRule).default(''),
  /**
   * The least that a payment is for on networks whose fees this service pays, in utia. Fees of simulated networks are
   * play money.
   */
  X402_MIN_UTIA: z.string().refine(areMinimums, minimumsRule).default('1000'),
  /** How long a request waits for the settlement of its payment, before it is answered with a ticket. */
  X402_SETTLE_WAIT_MS: whole(100, 60_000).default(45_000),
  /**
   * The requirements that POST /x402/settle settles: those that this service has made, or those of others too, for
   * callers with a key.
   */
  X402_SETTLE: z.enum(['own', 'open'], { error: 'own or open is expected' }).default('own'),
  /** The seed of the accounts that pay the gas on EVM networks, and the fees on Solana. */
  X402_KEY_FILE: z.string().min(1).optional(),
  /** How long what a read by an agent key costs is held back that is neither completed nor cancelled. */
  AGENT_RESERVATION_MS: whole(1_000, 3_600_000).default(60_000),
  /** Knows which writes were done. May be absent only when data is in the same process. */
  DATA_ADDRESS: grpcAddress.optional(),
  /** The ledger. May be absent only when finance is in the same process. */
  FINANCE_ADDRESS: grpcAddress.optional(),
});

/** The environment of the payments service. */
export const paymentsConfig = settings.superRefine((config, context) => {
  if (config.X402_KEY_FILE !== undefined) return;
  const isSet = new Map<string, unknown>(Object.entries(config));
  for (const name of schemes.flatMap(({ nodes }) => nodes?.name ?? [])) {
    if (isSet.get(name) === undefined && isSet.get(`${name}_FILE`) === undefined) continue;
    context.addIssue({ code: 'custom', path: ['X402_KEY_FILE'], message: `is needed with ${name}` });
  }
});

/** The settings from which the prices and rates are stored that all copies share. */
export const priceConfig = settings.pick({
  RETENTION_UTIA_PER_GIB_DAY: true,
  RETENTION_FREE_DAYS: true,
  X402_RATES: true,
  X402_PAY_TO: true,
});

export type PriceConfig = Readonly<z.infer<typeof priceConfig>>;

export type PaymentsConfig = Readonly<z.infer<typeof paymentsConfig>>;
