const numberPattern = /^(0|[1-9]\d{0,15})$/;
const entriesMax = 9;

/** The amounts of a setting, of which `usual` is for all networks that have none of their own. */
export interface Amounts {
  usual: bigint | undefined;
  byNetwork: ReadonlyMap<string, bigint>;
}

/**
 * The amounts of `1000,eip155:1=500000`: that of all networks, and those of some; undefined for another text.
 *
 * @param isNetwork Whether amounts may be for a network.
 */
export function readAmounts(text: string, isNetwork: (name: string) => boolean): Amounts | undefined {
  let usual: bigint | undefined;
  const byNetwork = new Map<string, bigint>();
  const entries = text.split(',').map((entry) => entry.trim());
  if (entries.length > entriesMax) return undefined;
  for (const entry of entries) {
    const [name, amount, ...more] = entry.split('=') as [string, ...string[]];
    const isUsual = amount === undefined;
    const units = isUsual ? name : amount;
    if (more.length > 0 || !numberPattern.test(units) || BigInt(units) > BigInt(Number.MAX_SAFE_INTEGER))
      return undefined;
    if (isUsual ? usual !== undefined : !isNetwork(name) || byNetwork.has(name)) return undefined;
    if (isUsual) usual = BigInt(units);
    else byNetwork.set(name, BigInt(units));
  }
  return { usual, byNetwork };
}
