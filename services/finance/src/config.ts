import { z } from 'zod';
import { optionalText, serviceAddress, whole, wrongConfig } from '@granary/shared/config';
import { simulatedChainPrefix } from '@granary/shared/money/play-money';
import { commonConfig } from '@granary/shared/service/common-config';
import { readSecret } from '@granary/shared/trust/setting-file';

/** The URLs of nodes, which may have a path, or user and password, as providers of nodes give them. */
const nodeUrls = z
  .array(z.url({ protocol: /^https?$/, error: 'http:// or https:// URLs with commas between are expected' }))
  .max(10, 'at most 10 nodes are expected');

const splitUrls = (text: string): string[] => text.split(',').map((url) => url.trim());
const problemsOf = (text: string): string[] =>
  (nodeUrls.safeParse(splitUrls(text)).error?.issues ?? []).map(({ message }) => message);

/** The environment of the finance service. An address may be absent only when that service is in the same process. */
const settings = commonConfig.extend({
  DATA_ADDRESS: serviceAddress('data'),
  BLOBS_ADDRESS: serviceAddress('blobs'),
  PAYMENTS_ADDRESS: serviceAddress('payments'),
  KEY_FILE: z
    .string()
    .min(1)
    .describe('File with the [seed of the wallets](#the-seed-of-the-wallets). Whoever loses it loses their money.'),
  KEY_FILE_CREATE: z
    .stringbool()
    .default(false)
    .describe('Whether the first start makes `KEY_FILE`. Set it only where the file outlives the process.'),
  ADDRESS_PREFIX: z
    .string()
    .regex(/^[a-z][a-z0-9]{0,19}$/, 'lower-case letters and digits are expected')
    .default('celestia')
    .describe('Prefix of wallet addresses; final once the service has run.'),
  CHAIN: z
    .enum(['simulated', 'cosmos'])
    .default('simulated')
    .describe(
      '`simulated`: a chain in the database, with play money. `cosmos`: [a real chain](../money/payouts.md#a-real-chain). Final once the service has run.',
    ),
  CHAIN_RPC_URLS: z
    .string()
    .superRefine((text, context) => {
      for (const message of problemsOf(text)) context.addIssue({ code: 'custom', message });
    })
    .optional()
    .meta({
      description: 'URLs of CometBFT nodes, separated by commas, at most 10.',
      defaultText: 'for `cosmos`',
    }),
  CHAIN_RPC_URLS_FILE: optionalText.describe('A file with the URLs, in place of `CHAIN_RPC_URLS`.'),
  CHAIN_ID: z
    .string()
    .regex(/^[A-Za-z0-9._-]{1,50}$/, 'the id of a chain is expected, for example celestia')
    .optional()
    .meta({
      description:
        'The id of the chain that transactions are signed for, for example `celestia`; final once the service has run.',
      defaultText: 'for `cosmos`',
    }),
  CHAIN_DENOM: z
    .string()
    .regex(/^[a-zA-Z][a-zA-Z0-9/:._-]{2,127}$/, 'a denomination is expected, for example utia')
    .default('utia')
    .describe('Smallest unit of the money of the chain.'),
  CHAIN_MEMO_BYTES_MAX: whole(0, 65_536).default(256).describe('The longest memo that the chain accepts.'),
  CHAIN_RPC_TIMEOUT_MS: whole(100, 60_000)
    .default(10_000)
    .describe('A node that takes longer for an answer counts as failed.'),
  CHAIN_GAS_PRICE: z
    .string()
    .regex(/^\d{1,6}(\.\d{1,9})?$/, 'a decimal number is expected, for example 0.004')
    .default('0.004')
    .describe('Price of a unit of gas in utia, with which transactions are signed.'),
  PAYOUT_FLOOR_UTIA: whole(1, Number.MAX_SAFE_INTEGER)
    .default(50_000)
    .describe('The smallest payout. The platform pays the fee of each, about 500 utia.'),
  PAYOUT_INTERVAL_MS: whole(0, 31_536_000_000)
    .default(3_600_000)
    .describe('The least time from an automatic payout of an app to its next one.'),
  DEPOSIT_DEPTH_BLOCKS: whole(0, 10_000)
    .default(1)
    .describe('A deposit is credited once this many blocks have followed its own.'),
  FAUCET_UTIA_MAX: whole(0, Number.MAX_SAFE_INTEGER)
    .default(1_000_000_000)
    .describe('The most that the faucet of the simulated chain gives at a time; 0 closes it.'),
  SIMULATED_BLOCK_MS: whole(10, 3_600_000)
    .default(2_000)
    .describe('Time between two blocks of the [simulated chain](../money/chain.md#the-simulated-chain).'),
  SIMULATED_LOSS_PERCENT: whole(0, 100)
    .default(0)
    .describe('How often the simulated chain loses a transaction that it has accepted.'),
  SIMULATED_EVICTION_PERCENT: whole(0, 100)
    .default(0)
    .describe('How often the simulated chain drops a transaction that is due, in place of including it.'),
  SIMULATED_DELAY_BLOCKS: whole(0, 1_000)
    .default(0)
    .describe('How many blocks late the simulated chain includes a transaction, at most.'),
});

export const financeConfig = settings.superRefine((config, context) => {
  if (config.CHAIN === 'simulated') return;
  const needed = { CHAIN_RPC_URLS: config.CHAIN_RPC_URLS ?? config.CHAIN_RPC_URLS_FILE, CHAIN_ID: config.CHAIN_ID };
  for (const [name, value] of Object.entries(needed)) {
    if (value !== undefined) continue;
    context.addIssue({ code: 'custom', path: [name], message: 'is needed when CHAIN is cosmos' });
  }
  if (config.CHAIN_ID?.startsWith(simulatedChainPrefix)) {
    context.addIssue({ code: 'custom', path: ['CHAIN_ID'], message: 'is that of a simulated chain' });
  }
});

export type FinanceConfig = Readonly<z.infer<typeof financeConfig>>;

/** The nodes of a real chain. Throws a ConfigError when they are in a file that is wrong. */
export function nodeUrlsOf(config: Pick<FinanceConfig, 'CHAIN_RPC_URLS' | 'CHAIN_RPC_URLS_FILE'>): string[] {
  const text = readSecret(config, 'CHAIN_RPC_URLS')!;
  const [problem] = problemsOf(text);
  if (problem !== undefined) throw wrongConfig([['CHAIN_RPC_URLS_FILE', problem]]);
  return splitUrls(text);
}
