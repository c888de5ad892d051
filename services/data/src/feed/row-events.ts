import { createHmac } from 'node:crypto';
import type { FeedEvent } from '@granary/shared/gen/granary/data/v1/FeedEvent';
import { withoutLineEnds } from '../json/line-ends';
import { project } from '../json/project';
import { mayKnowRowIds, type Channel } from './channel';
import type { RowSource, ViewEntry } from './view-rows';

/** The events of a changed row of a view, each with the channels that get the same bytes. */
export function rowEventsOf(entry: ViewEntry, readers: readonly number[], channels: readonly Channel[]): FeedEvent[] {
  const { text } = entry;
  const events = new Map<string, FeedEvent>();
  for (const index of readers) {
    const channel = channels[index]!;
    const key = `${mayKnowRowIds(channel)} ${text === undefined ? '' : channel.shownAs}`;
    const event = events.get(key);
    if (event) event.channels.push(index);
    else events.set(key, { kind: text ? 'put' : 'remove', members: membersFor(channel, entry), channels: [index] });
  }
  return [...events.values()];
}

function membersFor(channel: Channel, { height, view, id, text }: ViewEntry): Buffer {
  const shownId = mayKnowRowIds(channel) ? id : hiddenId(view, id);
  const members = JSON.stringify({ height: Number(height), view: view.name, id: shownId }).slice(1, -1);
  if (text === undefined) return Buffer.from(`${members},"reason":"deleted"`);
  if (!channel.hasDocuments) return Buffer.from(members);
  return Buffer.concat([Buffer.from(`${members},"document":`), withoutLineEnds(project(text, channel.projection))]);
}

/** The id of a row for those who may know no more than its text: ids are made of documents, and of values of groups. */
const hiddenId = ({ rowSecret }: RowSource, id: string): string =>
  createHmac('sha256', rowSecret).update(id).digest('hex').slice(0, 32);
