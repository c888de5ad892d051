import * as fc from 'fast-check';
import { checkProperty } from '@granary/testing/properties';
import { costUnits, dayMs, periodEndMs, roundedUtia, unitsPerUtia, wholeUtia, type PriceList } from './retention';

const GiB = 2n ** 30n;
const price = (utiaPerGibDay: bigint, freeDays: number, sinceMs = 0) => ({ utiaPerGibDay, freeDays, sinceMs });

test('a GiB for a day costs the price of a GiB-day, half of it half, and the free days nothing', () => {
  const prices: PriceList = [price(1_000n, 30)];
  const cost = (bytes: bigint, fromDay: number, toDay: number) =>
    wholeUtia(costUnits({ bytes, fromMs: fromDay * dayMs, toMs: toDay * dayMs, beganMs: 0 }, prices));
  expect(cost(GiB, 0, 30)).toBe(0n);
  expect(cost(GiB, 0, 31)).toBe(1_000n);
  expect(cost(GiB, 30, 31)).toBe(1_000n);
  expect(cost(GiB / 2n, 30, 31)).toBe(500n);
  expect(cost(GiB, 30, 30.5)).toBe(500n);
  expect(cost(GiB, 31, 30)).toBe(0n);
  expect(cost(2n ** 53n, 30, 3_680)).toBe(2n ** 23n * 1_000n * 3_650n);
});

test('each part of the time has the price of its day; the first price holds before it was known', () => {
  const prices: PriceList = [price(1_000n, 0, 10 * dayMs), price(3_000n, 0, 20 * dayMs)];
  const cost = (fromDay: number, toDay: number) =>
    wholeUtia(costUnits({ bytes: GiB, fromMs: fromDay * dayMs, toMs: toDay * dayMs, beganMs: 0 }, prices));
  expect(cost(0, 10)).toBe(10_000n);
  expect(cost(19, 21)).toBe(4_000n);
  expect(cost(20, 21)).toBe(3_000n);
});

test('a time that is cut into parts costs the same as the whole, to the last unit', async () => {
  const ms = fc.integer({ min: 0, max: 100 * dayMs });
  const prices = fc
    .array(fc.tuple(fc.bigInt({ min: 0n, max: 5_000n }), fc.nat({ max: 40 }), ms), { minLength: 1, maxLength: 4 })
    .map((list) =>
      list.map(([utia, freeDays, sinceMs]) => price(utia, freeDays, sinceMs)).sort((a, b) => a.sinceMs - b.sinceMs),
    );
  await checkProperty(
    'finance/retention',
    100,
    fc.property(
      prices,
      fc.bigInt({ min: 1n, max: 2n ** 50n }),
      ms,
      fc.array(ms, { minLength: 2 }),
      (list, bytes, beganMs, cuts) => {
        const at = [...cuts].sort((a, b) => a - b);
        const cost = (fromMs: number, toMs: number) =>
          costUnits({ bytes, fromMs, toMs, beganMs }, list as unknown as PriceList);
        const parts = at.slice(1).map((toMs, before) => cost(at[before]!, toMs));
        expect(parts.reduce((sum, part) => sum + part, 0n)).toBe(cost(at[0]!, at.at(-1)!));
      },
    ),
  );
});

test('amounts are rounded down when they accrue, and half up when they are foretold', () => {
  expect([wholeUtia(unitsPerUtia - 1n), wholeUtia(unitsPerUtia)]).toEqual([0n, 1n]);
  expect([roundedUtia(unitsPerUtia / 2n - 1n), roundedUtia(unitsPerUtia / 2n)]).toEqual([0n, 1n]);
});

test('a period ends every 30 days after the first bytes', () => {
  const began = 5 * dayMs;
  expect(periodEndMs(began, began)).toBe(began + 30 * dayMs);
  expect(periodEndMs(began, began + 30 * dayMs - 1)).toBe(began + 30 * dayMs);
  expect(periodEndMs(began, began + 30 * dayMs)).toBe(began + 60 * dayMs);
  expect(periodEndMs(began, began - 1)).toBe(began + 30 * dayMs);
});
