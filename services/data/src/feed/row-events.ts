import { createHmac } from 'node:crypto';
import type { FeedEvent } from '@granary/shared/gen/granary/data/v1/FeedEvent';
import { ShownDocuments } from './change-text';
import { mayKnowRowIds, type Channel } from './channel';
import { SharedEvents } from './events';
import type { RowSource, ViewEntry } from './view-rows';

/** No view shows encrypted fields. */
const rowTexts = new ShownDocuments({ cipher: undefined });

/** The events of a changed row of a view, each with the channels that get the same bytes. */
export function rowEventsOf(entry: ViewEntry, readers: readonly number[], channels: readonly Channel[]): FeedEvent[] {
  const kind = entry.text ? 'put' : 'remove';
  const events = new SharedEvents();
  for (const index of readers) {
    const channel = channels[index]!;
    const key = `${mayKnowRowIds(channel)} ${entry.text ? channel.shownAs : ''}`;
    events.add(key, index, kind, () => membersFor(channel, entry));
  }
  return events.list;
}

function membersFor(channel: Channel, { height, view, id, text }: ViewEntry): Buffer {
  const shownId = mayKnowRowIds(channel) ? id : hiddenId(view, id);
  const members = JSON.stringify({ height: Number(height), view: view.name, id: shownId }).slice(1, -1);
  if (text === undefined) return Buffer.from(`${members},"reason":"deleted"`);
  if (!channel.hasDocuments) return Buffer.from(members);
  return Buffer.concat([Buffer.from(`${members},"document":`), rowTexts.textFor(channel, text)]);
}

/** The id of a row for those who may know no more than its text: ids are made of documents, and of values of groups. */
const hiddenId = ({ rowSecret }: RowSource, id: string): string =>
  createHmac('sha256', rowSecret).update(id).digest('hex').slice(0, 32);
