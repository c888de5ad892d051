import type { Scheme } from '../../networks/scheme';
import { readSolanaAddress } from './address';
import { parseSolanaAssets, solanaKeyOfShortName } from './assets';
import { openFeeKey } from './fee-key';
import { parseSolanaFeePayers } from './fee-payers';
import { solanaMethods } from './methods';
import { solanaRpcUrls, solanaSettings } from './settings';
import { SolanaExact } from './verify';

const namePattern = /^solana:[1-9A-HJ-NP-Za-km-z]{32}$/;
const tokenPattern = /^solana:[1-9A-HJ-NP-Za-km-z]{32}\/([1-9A-HJ-NP-Za-km-z]{32,44})$/;

/** The development network, which has the token of `usdc-test`, and the testnet. */
const testNetworks = [solanaKeyOfShortName('usdc-test')!.split('/')[0]!, 'solana:4uhcVJyU9pJkvQyS88uRDiswHXSCkY3z'];

function tokensOf(name: string): string[] {
  const key = solanaKeyOfShortName(name);
  if (key !== undefined) return [key];
  const [, mint] = tokenPattern.exec(name) ?? [];
  return mint !== undefined && readSolanaAddress(mint) !== undefined ? [name] : [];
}

/** Payments in tokens on Solana, by transactions of which the payer of the fee has not signed yet. */
export const solana: Scheme<typeof solanaSettings> = {
  settings: solanaSettings,
  nodes: solanaRpcUrls,
  example: 'solana:5eykt…=…',
  takes: (network) => namePattern.test(network),
  isAddress: ({ address }) => readSolanaAddress(address) !== undefined,
  worthOf: (network) => (testNetworks.includes(network) ? 'test' : 'real'),
  tokensOf,
  feeAccount: async (keyFile) => `Solana: ${(await openFeeKey(keyFile)).address}`,
  open: async (config, { log, now, everyMs, addresses }) => {
    const assets = parseSolanaAssets(config.X402_SOLANA_ASSETS);
    const listed = parseSolanaFeePayers(config.X402_SOLANA_FEE_PAYERS);
    const verifiedWith = (feePayers: readonly string[]) => {
      const methods = solanaMethods(addresses, assets, feePayers[0] ?? '');
      return { verifier: new SolanaExact({ assets, feePayers }), methods: () => methods };
    };
    const urls = solanaRpcUrls.in(config);
    if (urls.size === 0) return { ...verifiedWith(listed), networks: [] };
    // Its libraries are loaded only where there are such networks.
    const { openSolanaNetworks } = await import('@granary/payments/schemes/solana/open-networks');
    const key = await openFeeKey(config.X402_KEY_FILE!);
    const { SOLANA_RPC_TIMEOUT_MS: timeoutMs, SOLANA_COMMITMENT: commitment } = config;
    const opened = await openSolanaNetworks(log, { urls, key, timeoutMs, commitment, everyMs, now });
    return { ...opened, ...verifiedWith([...new Set([key.address, ...listed])]) };
  },
};
