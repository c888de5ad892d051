const ppmPerPercent = 10_000;
const millionthsPerWhole = 1_000_000n;

/** The part of an application in millionths: as its price states it, and never more than the operator's setting. */
export function appShareOf({ APP_SHARE_PERCENT: percent }: { APP_SHARE_PERCENT: number }, ppm?: number): number {
  const shareMax = percent * ppmPerPercent;
  return ppm === undefined ? shareMax : Math.min(Math.max(ppm, 0), shareMax);
}

/** The part of the application, rounded down, and that of the platform, which is the rest. */
export function divideShares(amount: bigint, appSharePpm: number): { app: bigint; platform: bigint } {
  const app = (amount * BigInt(appSharePpm)) / millionthsPerWhole;
  return { app, platform: amount - app };
}
