import { z } from 'zod';
import { optionalText, serviceAddress, whole } from '@granary/shared/config';
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

const utia = whole(0, Number.MAX_SAFE_INTEGER);

const settings = commonConfig.extend({
  RETENTION_UTIA_PER_GIB_DAY: utia.default(1000).describe('Price of storing a GiB for a day, after the free days.'),
  RETENTION_FREE_DAYS: whole(0, 36_500).default(30).describe('Days of storage that cost nothing.'),
  WRITE_UTIA_PER_KB: utia.default(0).describe('Price in quotes of a KB of 1,024 bytes that is stored.'),
  READ_UTIA_PER_KB: utia.default(0).describe('Price in quotes of a KB that is read.'),
  INDEX_UTIA_PER_KB: utia
    .default(0)
    .describe('Price in quotes of a KB that is stored, for each indexed field that it fills.'),
  ENCRYPTED_INDEX_UTIA: utia
    .default(1_000_000)
    .describe('Price of an [encrypted index](../encryption.md#what-it-costs); 0: it costs nothing.'),
  BROKER_FEE_PERCENT: z
    .string()
    .refine(areFeeTiers, feeTiersRule)
    .default('0')
    .describe(
      "The broker's fee in quotes, of the price of a KB; `0:20,1000000:15.5` sets tiers by the volume in KB of a month.",
    ),
  APP_SHARE_PERCENT: whole(0, 100)
    .default(80)
    .describe(
      "An app's share of what its [priced reads](../money/prices.md) earn, and the most that its prices may name.",
    ),
  X402_PAY_TO: z
    .string()
    .superRefine(checkPaymentAddresses)
    .default('')
    .describe(
      'Where [x402 payments](../money/networks.md) go, in one kind of money: `wallets` or `cosmos:celestia=…` (their chain), `eip155:8453=0x…`, `simulated`, or `none`. `npm start` sets `wallets,simulated`. Empty: no x402 payments.',
    ),
  X402_RATES: z
    .string()
    .refine(areRates, ratesRule)
    .default('')
    .describe(
      'Units of tokens for 1 TIA, separated by commas: `usdc=4200000`, `eip155:8453/0x8335…=4200000`. A token without a rate is not offered.',
    ),
  X402_MIN_UTIA: z
    .string()
    .refine(areMinimums, minimumsRule)
    .default('1000')
    .describe(
      'The least that payments are for where [this service pays the fees](../money/networks.md#small-payments), in utia; `1000,eip155:1=500000` sets another amount for some networks. Fees of simulated networks are play money.',
    ),
  X402_SETTLE: z
    .enum(['own', 'open'], { error: 'own or open is expected' })
    .default('own')
    .describe(
      'What `POST /x402/settle` settles: `own`: requirements that this service has made; `open`: those of others too, for callers with a key.',
    ),
  X402_SETTLE_WAIT_MS: whole(100, 60_000)
    .default(45_000)
    .describe(
      'How long a request waits until a block has its payment, before it is answered with a ticket: longer than two blocks take, shorter than `PAYMENT_TIMEOUT_MS` and `IDLE_TIMEOUT_MS`.',
    ),
  X402_KEY_FILE: optionalText.describe(
    'File with the seed of the accounts that pay gas on EVM networks and fees on Solana, protected as [that of the wallets](#the-seed-of-the-wallets). `EVM_RPC_URLS` and `SOLANA_RPC_URLS` need it.',
  ),
  AGENT_RESERVATION_MS: whole(1_000, 3_600_000)
    .default(60_000)
    .describe(
      'How long an agent key reserves the price of a read that is neither completed nor cancelled; longer than `REQUEST_TIMEOUT_MS`.',
    ),
  ...schemeSettings,
  DATA_ADDRESS: serviceAddress('data, which knows what became of [paid writes](../money/prices.md#writes)'),
  FINANCE_ADDRESS: serviceAddress('finance, for the ledger'),
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
