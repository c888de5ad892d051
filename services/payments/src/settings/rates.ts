import { schemes } from '../schemes/schemes';

const entry = /^([^=]{1,128})=([1-9]\d{0,29})$/;

function read(text: string): Map<string, bigint> | undefined {
  const rates = new Map<string, bigint>();
  for (const part of text === '' ? [] : text.split(',')) {
    const [, name = '', units] = entry.exec(part.trim()) ?? [];
    const tokens = schemes.flatMap((scheme) => scheme.tokensOf(name));
    if (tokens.length === 0 || tokens.some((token) => rates.has(token))) return undefined;
    for (const token of tokens) rates.set(token, BigInt(units!));
  }
  return rates;
}

/** Units per TIA of `usdc=4200000,eip155:8453/0x8335…=4200000`, by the CAIP-2 network and the address of the token. */
export const parseRates = (text: string): Map<string, bigint> => read(text)!;

export const areRates = (text: string): boolean => read(text) !== undefined;

export const ratesRule =
  'units of tokens for 1 TIA are expected, as usdc=4200000, eip155:8453/0x8335…=4200000 or solana:5eykt…/EPjFW…=4200000, separated by commas, each token once, an EVM address in lower case or with a checksum that fits (EIP-55)';
