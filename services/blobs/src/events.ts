import { PoisonEvent, type BusEvent } from '@granary/shared/bus/inbox';
import type { Connection } from '@granary/shared/postgres/pool';
import { endBlobs, type DeletionScope } from './records/blobs';

/** Applies events of `data`. The bytes of deleted blobs are removed in the background. */
export async function handleEvent(tx: Connection, event: BusEvent): Promise<void> {
  const scope = () => ({ appId: text(event, 'app_id'), end: endOf(event) });
  switch (event.type) {
    case 'collection.deleted':
      await endBlobs(tx, { ...scope(), collection: text(event, 'collection') });
      return;
    case 'documents.purged':
      // The metadata document of a blob has the blob's id.
      await endBlobs(tx, { ...scope(), collection: text(event, 'collection'), blobIds: texts(event, 'ids') });
      return;
    case 'app.deleted':
      await endBlobs(tx, scope());
      return;
    default:
  }
}

/** The height of a deletion, which events of older releases and those of apps lack: they have a time. */
function endOf(event: BusEvent): DeletionScope['end'] {
  const [appNumber, height] = [number(event, 'app_number'), number(event, 'height')];
  if (appNumber !== undefined && height !== undefined) return { appNumber, height };
  const time = new Date(event.at);
  const collectionNumber = number(event, 'collection_number');
  return collectionNumber === undefined ? { time } : { time, collectionNumber };
}

/** Undefined where the event lacks it. */
function number({ type, payload }: BusEvent, field: string): bigint | undefined {
  const value = payload[field];
  if (value === undefined) return undefined;
  if (typeof value !== 'string' || !/^\d{1,18}$/.test(value)) throw new PoisonEvent(`the ${field} of ${type} is wrong`);
  return BigInt(value);
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
