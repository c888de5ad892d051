import type { IndexPrice } from '@granary/shared/gen/granary/data/v1/IndexPrice';

export const PAYMENT_REQUIRED = 'PAYMENT_REQUIRED';

/** The price of a read that touches a field, or a collection, view or query as a whole. */
export interface ReadPrice {
  /** The name of the field, `*` for the whole. */
  field: string;
  /** Empty for the whole. */
  path: readonly string[];
  model: 'per_access' | 'per_kb';
  /** The price of one access, or of one KB of 1,024 bytes; at least 1. */
  amountUtia: bigint;
  /** The part of the application in millionths; undefined where the price does not say. */
  appSharePpm: number | undefined;
}

/** A price as it is stored: JSON of its members; null for one that has none. */
export function priceText(price: IndexPrice | null | undefined): string | null {
  const entries = Object.entries(price ?? {}).filter(([, value]) => value !== undefined && value !== null);
  return entries.length === 0 ? null : JSON.stringify(Object.fromEntries(entries));
}

/** A price that is stored, as a message. */
export const storedPrice = (text: string | null): IndexPrice | undefined =>
  text === null ? undefined : (JSON.parse(text) as IndexPrice);

/** The part of the application, in millionths, as a price states it, for itself or by that of the platform. */
export function appShareOf(price: IndexPrice | undefined): number | undefined {
  const { appOwnerPercentage: app, platformPercentage: platform } = price ?? {};
  const share = app ?? (platform === undefined ? undefined : 1 - platform);
  return share === undefined ? undefined : Math.round(share * 1_000_000);
}

/** The amount that a price names for what it counts; undefined where there is no price. */
export function amountOf(price: IndexPrice | undefined): bigint | undefined {
  const amount = price?.pricingModel === 'per_kb' ? price.pricePerKbUtia : price?.pricePerAccessUtia;
  return price?.pricingModel === undefined || amount === undefined ? undefined : BigInt(amount);
}

/** The price of reading a view or query as a whole: undefined where it has none of its own, empty where it is free. */
export function ownReadPrice(text: string | null): readonly ReadPrice[] | undefined {
  if (text === null) return undefined;
  const price = storedPrice(text);
  return amountOf(price) === undefined ? undefined : pricesOf(price, ['*']);
}

/** The prices of reading a collection: its own, and that of each field of an index that has one. Undefined: none. */
export function collectionReadPrices(
  ownText: string | null,
  indexes: ReadonlyArray<{ fields: readonly string[]; priceText: string | null }>,
): readonly ReadPrice[] | undefined {
  const priced = indexes.filter((index) => index.priceText !== null);
  if (ownText === null && priced.length === 0) return undefined;
  const prices = [
    ...(ownText === null ? [] : pricesOf(storedPrice(ownText), ['*'])),
    ...priced.flatMap((index) => pricesOf(storedPrice(index.priceText), index.fields)),
  ];
  return prices.length === 0 ? undefined : prices;
}

function pricesOf(price: IndexPrice | undefined, fields: readonly string[]): ReadPrice[] {
  const amountUtia = amountOf(price);
  if (amountUtia === undefined || amountUtia === 0n) return [];
  const model = price!.pricingModel === 'per_kb' ? ('per_kb' as const) : ('per_access' as const);
  const appSharePpm = appShareOf(price);
  return fields.map((field) => ({
    field,
    path: field === '*' ? [] : field.split('.'),
    model,
    amountUtia,
    appSharePpm,
  }));
}
