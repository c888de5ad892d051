import { z } from 'zod';
import { PoisonEvent, type BusEvent, type Handle } from '@granary/shared/bus/inbox';
import { maxUtia } from '@granary/shared/money/amounts';
import { applyPrices, storedPrices, type PricesIn } from './usage/prices';
import { applyBlobUsage, applyDataUsage, deleteAppUsage, deleteCollectionUsage } from './usage/usage';

/** The topic of data and of blobs that finance reads. */
export const usageTopics = ['usage'];
/** The topic of payments that finance reads. */
export const priceTopics = ['prices'];

const time = z.iso.datetime({ offset: true }).transform((text) => new Date(text));
const count = z.int().min(0).transform(BigInt);
const number = z.union([z.int().min(0), z.string().regex(/^\d{1,18}$/)]).transform(BigInt);

const payloads = {
  'collection.usage': z.object({
    app_id: z.string(),
    collection: z.string(),
    collection_number: number,
    size_bytes: count,
    // Absent in events from before it was published.
    index_bytes: count.default(0n),
    document_count: count,
    retention_days: z.int().min(0).max(2_147_483_647).nullable(),
    at: time,
  }),
  'collection.deleted': z.object({ app_id: z.string(), collection: z.string(), collection_number: number, at: time }),
  'app.deleted': z.object({ app_id: z.string(), at: time }),
  'blobs.usage': z.object({
    app_id: z.string(),
    collection: z.string(),
    // Absent in events from before it was published.
    collection_number: number.optional(),
    size_bytes: count,
    at: time,
  }),
  'prices.set': z.object({
    retention_utia_per_gib_day: z
      .string()
      .regex(/^\d{1,16}$/)
      .transform(BigInt)
      .refine((amount) => amount <= maxUtia),
    retention_free_days: z.int().min(0).max(2_147_483_647),
    since: time,
  }),
};

/** Keeps usage up to date with the events of data and blobs. Types that are not known are somebody else's. */
export function usageHandler(pricesIn: PricesIn = storedPrices): Handle {
  return async (tx, event) => {
    // Prices are read on the connection of the transaction. Waiting for a second connection of the pool while holding
    // one could last forever.
    const prices = pricesIn(tx);
    switch (event.type) {
      case 'collection.usage': {
        const usage = read(payloads['collection.usage'], event);
        return applyDataUsage(tx, prices, {
          appId: usage.app_id,
          collection: usage.collection,
          number: usage.collection_number,
          bytes: usage.size_bytes + usage.index_bytes,
          documentCount: usage.document_count,
          retentionDays: usage.retention_days,
          at: usage.at,
        });
      }
      case 'blobs.usage': {
        const usage = read(payloads['blobs.usage'], event);
        return applyBlobUsage(tx, prices, {
          appId: usage.app_id,
          collection: usage.collection,
          number: usage.collection_number,
          bytes: usage.size_bytes,
          at: usage.at,
        });
      }
      case 'collection.deleted': {
        const {
          app_id: appId,
          collection,
          collection_number: number,
          at,
        } = read(payloads['collection.deleted'], event);
        return deleteCollectionUsage(tx, prices, { appId, collection, number, at });
      }
      case 'app.deleted': {
        const { app_id: appId, at } = read(payloads['app.deleted'], event);
        return deleteAppUsage(tx, prices, { appId, at });
      }
    }
  };
}

/** Keeps the prices of payments. Types that are not known are somebody else's. */
export const handlePrices: Handle = async (tx, event) => {
  if (event.type !== 'prices.set') return;
  const prices = read(payloads['prices.set'], event);
  await applyPrices(tx, {
    sinceMs: prices.since.getTime(),
    utiaPerGibDay: prices.retention_utia_per_gib_day,
    freeDays: prices.retention_free_days,
  });
};

function read<S extends z.ZodType>(schema: S, event: BusEvent): z.infer<S> {
  const parsed = schema.safeParse(event.payload);
  if (parsed.success) return parsed.data;
  throw new PoisonEvent(`the payload of ${event.type} is wrong: ${z.prettifyError(parsed.error)}`);
}
