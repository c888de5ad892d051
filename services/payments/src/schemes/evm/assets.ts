import { lowerAllCapitals, readEvmAddress } from './address';

/** A token that takes signed authorizations of transfers (EIP-3009), with the EIP-712 domain of its signatures. */
export interface EvmAsset {
  /** CAIP-2, for example `eip155:8453`. */
  network: string;
  chainId: bigint;
  /** The address of the token, in lower case. */
  address: string;
  name: string;
  version: string;
}

// The published deployments of USDC, whose name in the domain is not the same on each network.
const deployments: Readonly<Record<string, readonly string[]>> = {
  usdc: [
    'eip155:1/0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48=USD Coin:2',
    'eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913=USD Coin:2',
    'eip155:137/0x3c499c542cef5e3811e1192ce70d8cc03d5c3359=USD Coin:2',
    'eip155:42161/0xaf88d065e77c8cc2239327c5edb3a432268e5831=USD Coin:2',
    'eip155:43114/0xb97ef9ef8734c71904d8002f8b6bc66dd9c48a6e=USD Coin:2',
    'eip155:143/0x754704bc059f8c67012fed69bc8a327a5aafb603=USDC:2',
  ],
  'usdc-test': [
    'eip155:84532/0x036cbd53842c5426634e7929541ec2318f3dcf7e=USDC:2',
    'eip155:80002/0x41e94eb019c0762f9bfcf9fb1e58725bfb0e7582=USDC:2',
    'eip155:421614/0x75faf114eafb1bdbe2f0316df893fd58ce46aa4d=USD Coin:2',
    'eip155:43113/0x5425890298aed601595a70ab815c96711a31bc65=USD Coin:2',
  ],
};

/** The CAIP-2 network and the address of a token, as one name. */
export const assetKeyOf = ({ network, address }: Pick<EvmAsset, 'network' | 'address'>): string =>
  `${network}/${address}`;

/** The names of the tokens that a short name stands for; undefined for another text. */
export const keysOfShortName = (name: string): string[] | undefined =>
  Object.hasOwn(deployments, name) ? deployments[name]!.map((entry) => entry.split('=')[0]!) : undefined;

const pattern = /^(eip155:([1-9]\d{0,15}))\/(0x[0-9a-fA-F]{40})=([ -+\--9;-~]{1,64}):([ -+\--9;-~]{1,16})$/;
const assetsMax = 64;

/** The tokens of `usdc,eip155:8453/0x8335…=USD Coin:2`; undefined for another text. */
function read(text: string): EvmAsset[] | undefined {
  const entries = text === '' ? [] : text.split(',').flatMap((entry) => deployments[entry.trim()] ?? [entry.trim()]);
  const assets: EvmAsset[] = [];
  for (const entry of entries) {
    const [, network, chainId, address, name, version] = pattern.exec(entry) ?? [];
    if (version === undefined) return undefined;
    const read = readEvmAddress(lowerAllCapitals(address!));
    if (read === undefined) return undefined;
    assets.push({
      network: network!,
      chainId: BigInt(chainId!),
      address: read,
      name: name!,
      version,
    });
  }
  const keys = new Set(assets.map(assetKeyOf));
  return keys.size === assets.length && assets.length <= assetsMax ? assets : undefined;
}

export const parseEvmAssets = (text: string): EvmAsset[] => read(text)!;

export const areEvmAssets = (text: string): boolean => read(text) !== undefined;

export const evmAssetsRule =
  'usdc, usdc-test or tokens with the name and version of their EIP-712 domains are expected, as ' +
  'eip155:8453/0x8335…=USD Coin:2, separated by commas, each token once, its address in lower case or with a checksum that fits (EIP-55)';
