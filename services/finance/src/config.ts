import { z } from 'zod';
import { grpcAddress, whole, wrongConfig } from '@granary/shared/config';
import { simulatedChainPrefix } from '@granary/shared/money/play-money';
import { commonConfig } from '@granary/shared/service/common-config';
import { readSecret } from '@granary/shared/trust/setting-file';

const address = grpcAddress.optional();

/** The URLs of nodes. Node providers often issue them with a path, or with a user and a password. */
const nodeUrls = z
  .array(z.url({ protocol: /^https?$/, error: 'http:// or https:// URLs with commas between are expected' }))
  .max(10, 'at most 10 nodes are expected');

const splitUrls = (text: string): string[] => text.split(',').map((url) => url.trim());
const problemsOf = (text: string): string[] =>
  (nodeUrls.safeParse(splitUrls(text)).error?.issues ?? []).map(({ message }) => message);

/** The environment of the finance service. An address may be absent only when that service is in the same process. */
const settings = commonConfig.extend({
  DATA_ADDRESS: address,
  BLOBS_ADDRESS: address,
  PAYMENTS_ADDRESS: address,
  /** The seed of all wallets. Whoever loses it loses what was sent to the wallets. */
  KEY_FILE: z.string().min(1),
  /** Whether the first start makes the file: only where it is kept, not on a volume that ends with its pod. */
  KEY_FILE_CREATE: z.stringbool().default(false),
  /** The prefix of the addresses of the chain; final once the service has run. */
  ADDRESS_PREFIX: z
    .string()
    .regex(/^[a-z][a-z0-9]{0,19}$/, 'lower-case letters and digits are expected')
    .default('celestia'),
  /**
   * `simulated`: a chain of the database, whose money is none; `cosmos`: a real one. Final once the service has run.
   */
  CHAIN: z.enum(['simulated', 'cosmos']).default('simulated'),
  /** The CometBFT nodes of a real chain. */
  CHAIN_RPC_URLS: z
    .string()
    .superRefine((text, context) => {
      for (const message of problemsOf(text)) context.addIssue({ code: 'custom', message });
    })
    .optional(),
  CHAIN_RPC_URLS_FILE: z.string().min(1).optional(),
  /** The id of the chain that transactions are signed for; final once the service has run. */
  CHAIN_ID: z
    .string()
    .regex(/^[A-Za-z0-9._-]{1,50}$/, 'the id of a chain is expected, for example celestia')
    .optional(),
  /** The smallest unit of the money of the chain. */
  CHAIN_DENOM: z
    .string()
    .regex(/^[a-zA-Z][a-zA-Z0-9/:._-]{2,127}$/, 'a denomination is expected, for example utia')
    .default('utia'),
  /** The longest memo that the chain accepts. */
  CHAIN_MEMO_BYTES_MAX: whole(0, 65_536).default(256),
  /** A node that takes longer for an answer counts as failed. */
  CHAIN_RPC_TIMEOUT_MS: whole(100, 60_000).default(10_000),
  /** The price of a unit of gas, in utia, at which transactions are signed. */
  CHAIN_GAS_PRICE: z
    .string()
    .regex(/^\d{1,6}(\.\d{1,9})?$/, 'a decimal number is expected, for example 0.004')
    .default('0.004'),
  /** Nothing smaller is paid out: the platform pays the fees. */
  PAYOUT_FLOOR_UTIA: whole(1, Number.MAX_SAFE_INTEGER).default(50_000),
  /** The minimum time between two automatic payouts of an app. */
  PAYOUT_INTERVAL_MS: whole(0, 31_536_000_000).default(3_600_000),
  /** A deposit is credited once so many blocks have followed its own. */
  DEPOSIT_DEPTH_BLOCKS: whole(0, 10_000).default(1),
  /** The most that the faucet of the simulated chain gives in one call; 0: it is closed. */
  FAUCET_UTIA_MAX: whole(0, Number.MAX_SAFE_INTEGER).default(1_000_000_000),
  /** The time between two blocks of the simulated chain. */
  SIMULATED_BLOCK_MS: whole(10, 3_600_000).default(2_000),
  /** How often the simulated chain loses a transaction that it has accepted, and drops one instead of including it. */
  SIMULATED_LOSS_PERCENT: whole(0, 100).default(0),
  SIMULATED_EVICTION_PERCENT: whole(0, 100).default(0),
  /** How many blocks late it includes a transaction, at most. */
  SIMULATED_DELAY_BLOCKS: whole(0, 1_000).default(0),
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
