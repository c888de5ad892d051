import { keysOfShortName } from '../evm-assets';
import { readSolanaAddress } from '../solana-address';
import { lowerAllCapitals, readEvmAddress } from '../evm-address';
import { solanaKeyOfShortName } from '../solana-assets';

const entry = /^([^=]{1,128})=([1-9]\d{0,29})$/;
const evmKey = /^(eip155:[1-9]\d{0,15})\/(0x[0-9a-fA-F]{40})$/;
const solanaKey = /^solana:[1-9A-HJ-NP-Za-km-z]{32}\/([1-9A-HJ-NP-Za-km-z]{32,44})$/;

/** The tokens that a name stands for; undefined where it is no name. */
function assetsOf(name: string): string[] | undefined {
  const [evm, solana] = [keysOfShortName(name), solanaKeyOfShortName(name)];
  if (evm && solana !== undefined) return [...evm, solana];
  const [, network, address] = evmKey.exec(name) ?? [];
  if (address !== undefined) {
    const read = readEvmAddress(lowerAllCapitals(address));
    return read === undefined ? undefined : [`${network!}/${read}`];
  }
  const [, mint] = solanaKey.exec(name) ?? [];
  return mint !== undefined && readSolanaAddress(mint) !== undefined ? [name] : undefined;
}

function read(text: string): Map<string, bigint> | undefined {
  const rates = new Map<string, bigint>();
  for (const part of text === '' ? [] : text.split(',')) {
    const [, name, units] = entry.exec(part.trim()) ?? [];
    const assets = assetsOf(name ?? '');
    if (!assets || assets.some((asset) => rates.has(asset))) return undefined;
    for (const asset of assets) rates.set(asset, BigInt(units!));
  }
  return rates;
}

/** Units per TIA of `usdc=4200000,eip155:8453/0x8335…=4200000`, by asset. */
export const parseRates = (text: string): Map<string, bigint> => read(text)!;

export const areRates = (text: string): boolean => read(text) !== undefined;

export const ratesRule =
  'units of tokens for 1 TIA are expected, as usdc=4200000, eip155:8453/0x8335…=4200000 or solana:5eykt…/EPjFW…=4200000, separated by commas, each token once, an EVM address in lower case or with a checksum that fits (EIP-55)';
