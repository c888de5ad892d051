import { PoisonEvent, type BusEvent } from '@granary/shared/bus/inbox';
import type { Connection } from '@granary/shared/postgres/pool';
import { markAllDeleted } from './records/blobs';

/** Applies events of `data`. The bytes of deleted blobs are removed in the background. */
export async function handleEvent(tx: Connection, event: BusEvent): Promise<void> {
  switch (event.type) {
    case 'collection.deleted':
      return markAllDeleted(tx, {
        appId: text(event, 'app_id'),
        collection: text(event, 'collection'),
        ...collectionNumber(event),
        before: new Date(event.at),
      });
    case 'documents.purged':
      // The metadata document of a blob has the blob's id.
      return markAllDeleted(tx, {
        appId: text(event, 'app_id'),
        collection: text(event, 'collection'),
        blobIds: texts(event, 'ids'),
        before: new Date(event.at),
      });
    case 'app.deleted':
      return markAllDeleted(tx, { appId: text(event, 'app_id'), before: new Date(event.at) });
    default:
  }
}

/** Absent in events of older releases. */
function collectionNumber({ type, payload }: BusEvent): { collectionNumber?: bigint } {
  const value = payload['collection_number'];
  if (value === undefined) return {};
  if (typeof value !== 'string' || !/^\d{1,18}$/.test(value))
    throw new PoisonEvent(`the collection_number of ${type} is wrong`);
  return { collectionNumber: BigInt(value) };
}

function text(event: BusEvent, field: string): string {
  const value = event.payload[field];
  if (typeof value !== 'string') throw new PoisonEvent(`${event.type} has no ${field}`);
  return value;
}

function texts(event: BusEvent, field: string): string[] {
  const value = event.payload[field];
  if (!Array.isArray(value)) throw new PoisonEvent(`${event.type} has no ${field}`);
  return value.map(String);
}
