import { readSolanaAddress } from './address';

/** A token on Solana. */
export interface SolanaAsset {
  /** CAIP-2: `solana:` and the start of the hash of the first block. */
  network: string;
  /** Address of the mint, in base58. */
  mint: string;
  decimals: number;
  /** The program that the mint belongs to: the token program, or its successor. */
  program: 'token' | 'token-2022';
}

// The published deployments of USDC.
const deployments: Readonly<Record<string, string>> = {
  usdc: 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp/EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v=6',
  'usdc-test': 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1/4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU=6',
};

const pattern = /^(solana:[1-9A-HJ-NP-Za-km-z]{32})\/([1-9A-HJ-NP-Za-km-z]{32,44})=(\d|1\d)(:token-2022)?$/;
const assetsMax = 64;

/** How a token is called. */
export const solanaSymbolOf = (asset: SolanaAsset): string =>
  Object.values(deployments).some((entry) => entry.startsWith(`${solanaAssetKeyOf(asset)}=`)) ? 'USDC' : asset.mint;

/** The network and the mint of a token, as one name. */
export const solanaAssetKeyOf = ({ network, mint }: Pick<SolanaAsset, 'network' | 'mint'>): string =>
  `${network}/${mint}`;

/** The name of the token that a short name stands for; undefined for another text. */
export const solanaKeyOfShortName = (name: string): string | undefined =>
  Object.hasOwn(deployments, name) ? deployments[name]!.split('=')[0] : undefined;

/** The tokens of `usdc,solana:5eykt…/EPjFW…=6`; undefined for another text. */
function read(text: string): SolanaAsset[] | undefined {
  const entries = text === '' ? [] : text.split(',').map((entry) => entry.trim());
  const assets: SolanaAsset[] = [];
  for (const entry of entries) {
    const [, network, mint, decimals, successor] = pattern.exec(deployments[entry] ?? entry) ?? [];
    if (decimals === undefined || readSolanaAddress(mint!) === undefined) return undefined;
    const program = successor === undefined ? 'token' : 'token-2022';
    assets.push({ network: network!, mint: mint!, decimals: Number(decimals), program });
  }
  const keys = new Set(assets.map(solanaAssetKeyOf));
  return keys.size === assets.length && assets.length <= assetsMax ? assets : undefined;
}

export const parseSolanaAssets = (text: string): SolanaAsset[] => read(text)!;

export const areSolanaAssets = (text: string): boolean => read(text) !== undefined;

export const solanaAssetsRule =
  'usdc, usdc-test or tokens with their decimals are expected, as solana:5eykt…/EPjFW…=6, with :token-2022 behind those of the ' +
  'program Token-2022, separated by commas, each token once';
