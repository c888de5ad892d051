import { PoisonEvent, type BusEvent } from '@granary/shared/bus/inbox';
import type { Connection } from '@granary/shared/postgres/pool';
import { markAllDeleted } from './blobs';

/** What other services say that matters to blobs. Their bytes are removed in the background. */
export async function handleEvent(tx: Connection, event: BusEvent): Promise<void> {
  switch (event.type) {
    case 'collection.deleted':
      return markAllDeleted(tx, {
        appId: text(event, 'app_id'),
        collection: text(event, 'collection'),
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
