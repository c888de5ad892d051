/** A fee as a part of a price, in hundredths of a percent, from a volume in a month on. */
export interface FeeTier {
  fromKb: bigint;
  basisPoints: bigint;
}

const basisPointsMax = 10_000n;

/** The tiers of `20`, or of `0:20,1000000:15.5`: percentages, each from a volume in KB on. */
export function parseFeeTiers(text: string): FeeTier[] {
  return text.split(',').map((tier) => {
    const [percent, fromKb = '0'] = tier.split(':').reverse() as [string, string | undefined];
    const [whole, hundredths = ''] = percent.split('.') as [string, string | undefined];
    return { fromKb: BigInt(fromKb), basisPoints: BigInt(whole + hundredths.padEnd(2, '0')) };
  });
}

export const feeTiersRule =
  'a percentage of at most 100 is expected, or 0:20,1000000:15.5: percentages from monthly volumes in KB on, ascending';

const pattern = /^(0:)?\d{1,3}(\.\d{1,2})?(,\d{1,15}:\d{1,3}(\.\d{1,2})?){0,15}$/;

export const areFeeTiers = (text: string): boolean =>
  pattern.test(text) &&
  parseFeeTiers(text).every(
    ({ fromKb, basisPoints }, at, tiers) =>
      basisPoints <= basisPointsMax && (at === 0 || fromKb > tiers[at - 1]!.fromKb),
  );

/** The tier of a volume: the last that it reaches. The first begins with 0. */
export const feeTierOf = (tiers: readonly FeeTier[], volumeKb: bigint): FeeTier =>
  tiers.findLast(({ fromKb }) => fromKb <= volumeKb)!;
