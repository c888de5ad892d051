const numberPattern = /^(0|[1-9]\d{0,15})$/;
const network = /^(eip155:[1-9]\d{0,15}|solana:[1-9A-HJ-NP-Za-km-z]{32}|cosmos:[-_a-zA-Z0-9]{1,32})$/;
const entriesMax = 9;

/** The least that a payment is for, in utia, by network. */
export interface Minimums {
  usual: bigint;
  byNetwork: ReadonlyMap<string, bigint>;
}

function read(text: string): Minimums | undefined {
  let usual: bigint | undefined;
  const byNetwork = new Map<string, bigint>();
  const entries = text.split(',').map((entry) => entry.trim());
  if (entries.length > entriesMax) return undefined;
  for (const entry of entries) {
    const [name, amount, ...more] = entry.split('=') as [string, ...string[]];
    const isUsual = amount === undefined;
    const utia = isUsual ? name : amount;
    if (more.length > 0 || !numberPattern.test(utia) || BigInt(utia) > BigInt(Number.MAX_SAFE_INTEGER))
      return undefined;
    if (isUsual ? usual !== undefined : !network.test(name) || byNetwork.has(name)) return undefined;
    if (isUsual) usual = BigInt(utia);
    else byNetwork.set(name, BigInt(utia));
  }
  return { usual: usual ?? 0n, byNetwork };
}

/** The amounts of `1000,eip155:1=500000`: that of all networks, and those of some. */
export const parseMinimums = (text: string): Minimums => read(text)!;

export const areMinimums = (text: string): boolean => read(text) !== undefined;

export const minimumsRule =
  'amounts in utia are expected, as 1000 for all networks, or 1000,eip155:1=500000 with another one for some, each network once';
